"""What a run leaves to be read, and its public reader.

Viewers and users read it; nothing that records imports it.
"""
