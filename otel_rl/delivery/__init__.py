"""The outbox and the threads that bring it to exporters, each with its own cursor.

The agent, the bridge and the trainer's relay import it; it knows no exporter by name.
"""
