"""Statistics that merge over micro-batches, ranks, runs and tasks; a standard deviation is the population's (`ddof` 0).

Values that are NaN or infinite are counted apart and enter no statistic.

Every room above it may import it. It imports none.
"""
