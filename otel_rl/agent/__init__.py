"""The agent: one process per machine and run, which reads the journals of all its ranks.

    follow ─▶ reduce ─▶ outbox ─▶ one thread for each exporter
                  └────▶ instruments ─▶ Prometheus, OTLP metrics

`reduce` is a pure state machine over records; `outbox` holds what it made, together with its state, so
that an agent that died goes on where it was; each exporter has its own cursor in the outbox.
"""
