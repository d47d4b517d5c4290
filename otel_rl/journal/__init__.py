"""The records that a process writes down, their frames on disk, their ids, and the locks that say who may write.

The trainer writes with it and the agent reads with it. It imports `convert` and below.
"""
