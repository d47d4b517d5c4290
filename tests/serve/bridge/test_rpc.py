"""The gRPC server of the bridge: status codes, and when a client is to come again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_rl.recorder.otlp.answers import MALFORMED, Refusal
from otel_rl.serve.bridge import bodies, rpc
from tests.serve.bridge.bridges import BODY
from tests.serve.bridge.test_http import Taken

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def sink() -> Taken:
    return Taken()


@pytest.fixture
def channel(sink: Taken, request: pytest.FixtureRequest) -> Iterator[grpc.Channel]:
    server, port = rpc.serve("127.0.0.1:0", sink)
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_send_message_length", -1)]) as channel:
        yield channel
    server.stop(0)


def export(channel: grpc.Channel, body: bytes, **options: Any) -> bytes:
    """Send bytes as a request for logs."""
    call = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
    return bytes(call(body, timeout=10, **options))


def refused(channel: grpc.Channel, body: bytes = BODY) -> tuple[grpc.StatusCode, Status]:
    """Return the code and the status with which a request is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        export(channel, body)
    details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    return caught.value.code(), Status.FromString(details)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_taken(compression: Any, channel: grpc.Channel, sink: Taken) -> None:
    """Compressed or not."""
    assert export(channel, BODY, compression=compression) == b""
    assert [request.SerializeToString() for request in sink.requests] == [BODY]


def test_not_now(channel: grpc.Channel, sink: Taken) -> None:
    """UNAVAILABLE, with `RetryInfo`."""
    sink.error = OSError("the disk is full")
    code, status = refused(channel)
    info = RetryInfo()
    status.details[0].Unpack(info)

    assert code is grpc.StatusCode.UNAVAILABLE
    assert info.retry_delay.seconds == 5
    assert "the disk is full" in status.message


def test_a_bomb(channel: grpc.Channel, sink: Taken) -> None:
    """RESOURCE_EXHAUSTED: gRPC decompresses no more than the limit, which is that of HTTP; others are served."""
    with pytest.raises(grpc.RpcError) as caught:
        export(channel, bytes(4 * bodies.LARGEST), compression=grpc.Compression.Gzip)
    export(channel, BODY)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(sink.requests) == 1


def test_a_refusal_and_a_fault(channel: grpc.Channel, sink: Taken) -> None:
    """A refusal of the sink reaches the client; any other error is INTERNAL, without details."""
    sink.error = Refusal(MALFORMED, "no")
    mine = refused(channel)
    sink.error = KeyError("secret")
    code, status = refused(channel)

    assert (mine[0], mine[1].message) == (grpc.StatusCode.INVALID_ARGUMENT, "no")
    assert not mine[1].details  # no client sends it again
    assert code is grpc.StatusCode.INTERNAL
    assert "secret" not in status.message
