"""What is concluded of the records: stragglers, goodput, growing memory, staleness, idle GPUs.

`steps` and `output` import it; it imports `hardware` for the shape of a measurement alone.
"""
