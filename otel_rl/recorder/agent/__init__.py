"""The agent: one process per machine and run, which reads the journals of all its ranks.

    follow ─▶ apply to steps ─▶ reduce over ranks ─▶ choose traces and metrics ─▶ outbox ─▶ one thread per exporter
                                       └────▶ instruments ─▶ Prometheus, OTLP metrics

`process` starts an agent; `build` makes its parts; `agent` decides when it ends; `loop` takes one turn; `status`
reports.
The reducer is a pure state machine over records. The outbox holds its results together with its state, so the next
agent continues where the last one stopped.

`integrations` does not import it; `cli` starts it. Its folders are layers: see the contract "Inside the agent too" in
pyproject.toml.
"""
