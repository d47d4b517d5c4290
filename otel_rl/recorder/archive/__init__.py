"""The archive of a run: its tables, their files, what is open now, the writer, and the public reader.

The exporter of the archive imports the writer, the agent what is open now, and viewers and users the reader.
"""
