"""Ray: actors join the run of the driver, and their calls are spans of its traces.

    @ray.remote
    @traced_actor(role="rollout")
    class RolloutWorker:
        def generate(self, prompts): ...

Each call carries the caller's run and current span. The actor joins that run at its first call. The hook is
`__ray_invocation_decorator__`, which Ray calls in the caller of an actor's method. Tested with Ray 2.60.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry.trace import SpanKind

import otel_rl
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.settings.settings import INSTRUMENT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.frameworks.patches import Patches

logger = log_of(__name__)
_CONTEXT = "_otel_rl"
"""The keyword with which a call carries its context."""
_Class = TypeVar("_Class", bound=type)
_TRAINERS = {"verl": "verl", "skyrl": "SkyRL", "skyrl_train": "SkyRL", "openrlhf": "OpenRLHF", "trinity": "Trinity-RFT"}
"""Frameworks whose trainer is an actor, by their modules."""
_CLUSTER = (
    "%s trains in a Ray actor, and this Ray cluster was running already: the actor is recorded only if it has the "
    "variables %s and PYTHONPATH of this process; to pass them: ray.init(runtime_env={'env_vars': {...}})"
)


def patch(module: Any, patches: Patches) -> None:
    """Log one line if the driver connects to a cluster that does not get its variables."""

    def connected(_: Any, __: dict[str, Any]) -> None:
        trainer = next((title for name, title in _TRAINERS.items() if name in sys.modules), None)
        node = module._private.worker._global_node
        passed = module.get_runtime_context().runtime_env.get("env_vars") or {}
        is_elsewhere = node is None or not node.head
        if trainer and is_elsewhere and INSTRUMENT_VARIABLE in os.environ and INSTRUMENT_VARIABLE not in passed:
            logger.warning(_CLUSTER, trainer, INSTRUMENT_VARIABLE)

    patches.observe(module, "init", (), connected, what="ray.init")


def traced_actor(role: str = "") -> Callable[[_Class], _Class]:
    """Return a decorator for the class of an actor.

    Args:
        role: The actor's role in the run; the name of its class by default.
    """

    def decorate(actor: _Class) -> _Class:
        for name, method in inspect.getmembers(actor, inspect.isfunction):
            streams = inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method)
            is_static = isinstance(inspect.getattr_static(actor, name), staticmethod)
            if not name.startswith("__") and not streams and not is_static:
                setattr(actor, name, _traced(method, f"{actor.__name__}.{name}", role or actor.__name__))
        return actor

    return decorate


def _traced(method: Callable[..., Any], name: str, role: str) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with _joined(kwargs.pop(_CONTEXT, None), name, role):
                return await method(self, *args, **kwargs)
    else:

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            with _joined(kwargs.pop(_CONTEXT, None), name, role):
                return method(self, *args, **kwargs)

    del call.__wrapped__  # Ray reads the innermost signature, which does not have the context
    given = inspect.signature(method)
    context = inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = list(given.parameters.values())
    last = len(parameters) - any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    call.__signature__ = given.replace(parameters=[*parameters[:last], context, *parameters[last:]])  # type: ignore[attr-defined]
    call.__ray_invocation_decorator__ = _with_context  # type: ignore[attr-defined]
    return call


def _with_context(invocation: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call of an actor's method with the context of the caller, in which this runs."""

    def call(args: Any, kwargs: Any) -> Any:
        run = otel_rl.current()
        return invocation(args, kwargs if run is None else {**(kwargs or {}), _CONTEXT: run.environment()})

    return call


@contextmanager
def _joined(environment: dict[str, str] | None, name: str, role: str) -> Iterator[None]:
    """Record a call as a span under the caller's span. If the actor cannot join the run, record nothing."""
    try:
        run = _join(environment, role)
    except Exception:
        logger.warning("%s is not recorded", role, exc_info=True)
        run = None
    if run is None:
        yield
        return
    with otel_rl.attach(environment or {}):
        tracer = run.tracer_provider.get_tracer("ray")
        with tracer.start_as_current_span(name, kind=SpanKind.SERVER):
            yield


def _join(environment: dict[str, str] | None, role: str) -> otel_rl.Run | None:
    present = otel_rl.current()
    if present is not None or environment is None:
        return present
    place: dict[str, object] = {
        option: environment[variable]
        for option, variable in (
            ("id", "OTEL_RL_RUN_ID"),
            ("dir", "OTEL_RL_DIR"),
            ("project", "OTEL_RL_PROJECT"),
            ("name", "OTEL_RL_NAME"),
            ("head", "OTEL_RL_HEAD"),
        )
        if variable in environment
    }
    place |= {"insecure": True} if environment.get("OTEL_RL_INSECURE") == "true" else {}
    return otel_rl.init(**place, role=role, quiet=True)  # type: ignore[arg-type] # each of them is text
