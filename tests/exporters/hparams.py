"""What TensorBoard's HParams dashboard shows of a directory, by the plugin's own code."""

from __future__ import annotations

from typing import Any


def sessions(directory: str) -> list[Any]:
    """Return the session groups, each with its hyper-parameters and its sessions."""
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams.api_pb2 import ListSessionGroupsRequest
    from tensorboard.plugins.hparams.backend_context import Context
    from tensorboard.plugins.hparams.list_session_groups import Handler

    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(directory)
    multiplexer.Reload()
    context = Context(TBContext(logdir=directory, data_provider=MultiplexerDataProvider(multiplexer, directory)))
    request = ListSessionGroupsRequest(start_index=0, slice_size=100, allowed_statuses=[0, 1, 2, 3])
    return list(Handler(RequestContext(), context, "experiment", request).run().session_groups)


def values(group: Any) -> dict[str, bool | float | str]:
    """Return the hyper-parameters of a session group."""
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in group.hparams.items()}
