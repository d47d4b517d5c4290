"""Scenarios that may be run and read at any time."""
