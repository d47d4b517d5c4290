"""The records that a trainer process writes, their frames on disk, their ids, and the locks of their directories.

The trainer writes with it. `agent.input` reads with it, also after the trainer's process was killed.
It imports `convert` and below.
"""
