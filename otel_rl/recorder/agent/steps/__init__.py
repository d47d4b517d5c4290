"""The stages between a record and what exporters get: apply to steps, reduce over ranks, derive, choose.

The agent's loop imports it. It imports `analysis` and below.
"""
