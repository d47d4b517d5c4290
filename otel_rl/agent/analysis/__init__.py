"""Conclusions from the records: stragglers, goodput, growing memory, staleness, idle GPUs, inference servers.

`steps` and `output` import it. It imports the shape of a measurement from `hardware`.
"""
