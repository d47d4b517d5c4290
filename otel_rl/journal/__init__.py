"""What a process writes down: records, their frames on disk, their ids, and who may write where.

The trainer's side writes it and the agent reads it; it imports `convert` and below.
"""
