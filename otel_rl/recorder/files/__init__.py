"""The machine's files and processes: private files, atomic replacement, locks, file systems.

It imports `errors` and what is below.
"""
