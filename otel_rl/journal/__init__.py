"""The records that a trainer process writes, their frames on disk, their ids, and the locks of their directories.

The trainer writes with it and the agent reads with it. It imports `convert` and below.
"""
