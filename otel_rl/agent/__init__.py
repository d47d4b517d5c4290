"""The agent: one process per machine and run, which reads the journals of all its ranks.

    follow ─▶ apply to steps ─▶ reduce over ranks ─▶ outbox ─▶ one thread for each exporter
                                       └────▶ instruments ─▶ Prometheus, OTLP metrics

The reducer is a pure state machine over records. The outbox holds its results together with its state, so the next
agent continues where the last one stopped.

`integrations` does not import it; `cli` starts it. Its folders are layers: see the contract "Inside the agent too".
"""
