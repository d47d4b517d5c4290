"""The archive of a run: its tables, their files, what is open now, and the writer.

The exporter of the archive imports the writer, the agent what is open now (`now`), and viewers the state of a run
that follows from it (`present`).
"""
