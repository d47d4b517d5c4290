"""Scenarios that were written after the code had been corrected for all others, and run once before any correction."""
