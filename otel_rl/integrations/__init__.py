"""Loggers with the call shapes of the frameworks: change one import, and the run is recorded."""
