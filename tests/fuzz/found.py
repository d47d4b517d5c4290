"""Inputs that once failed, by target; add the one that a campaign prints."""

from __future__ import annotations

FOUND: dict[str, tuple[bytes, ...]] = {
    "journal": (
        b"\x00\x00\x00\xfe\x00\x00",  # lost records whose place holds zeros, before intact ones: not counted
        b"\x02\x95\t\xcf\x18\xea\x85l\x01\x00\xa8a\xa8she\x85l\x01\x00\xa8d\xc0\x00",  # an intact frame, invalid UTF-8
        # `sys.exit(179)`: 128 + a real-time signal, which Python's `signal.Signals` does not have
        b"\x04\x00\x00\x00\x16\x95\t\xcf\r\xe0\xb6\xb3\xa7d\x00\x00\xa8finished\xc0\x00\xb3",
    ),
    "outbox": (b'\x06{"outbox":"\xff"}',),
    "manifest": (
        *(bytes([kind]) + b'{"id":"\xff"}' for kind in (3, 5, 7)),  # invalid UTF-8
        # the bridge continued the run wherever `bridge.json` said
        b'\x07{"id":"run","project":"p","name":"run","directory":"/nowhere/otel-rl-fuzz","resource":{}}',
    ),
    "settings": (
        b"\x01a: !!timestamp x",  # PyYAML raises AttributeError
        b"\x01a: !!int ''",  # IndexError
        b"\x01a: !!bool x",  # KeyError
        b"\x00a=" + b"9" * 5000,  # more digits than Python converts
        b"\x00a=" + b"[" * 5000,  # RecursionError
    ),
    "environment": (
        b"OTEL_EXPORTER_OTLP_PROTOCOL=grpc\nOTEL_EXPORTER_OTLP_ENDPOINT=a:" + b"9" * 5000,
        b"OTEL_RL_ROWS_METRICS=a\xff,b",  # a text in another encoding than UTF-8, which JSON cannot have
        b"OTEL_RL_REDUCE=\xff*=max",
        b"OTEL_RL_EXPORTERS=a\xff",
        b"OTEL_RESOURCE_ATTRIBUTES=a=\xff",
        b"OTEL_SERVICE_NAME=\xff",
        b"OTEL_EXPORTER_PROMETHEUS_HOST=\xff",
    ),
    "answers": (
        # a chunk whose length is not a number
        b"\x01HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\x01\x003\r\nabc\r\n0\r\n\r\n",
        b"\x01HTTP/1.1 307 There\r\nLocation: \xff/\r\n\r\n",  # a redirect that is not UTF-8
    ),
    "scrape": (
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: text/plain;version=x\r\nConnection: close\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;version=1.x\r\n\r\n",
    ),
}
