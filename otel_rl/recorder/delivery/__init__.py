"""The outbox, and the threads that deliver it: one for each exporter, each with its own cursor.

The agent, the bridge and the trainer's relay import it. It knows no exporter by name.
"""
