"""The way of records to what exporters get: applied to steps, reduced over ranks, derived, chosen.

The agent's loop imports it; it imports `analysis` and below.
"""
