"""Statistics that can be merged over micro-batches, ranks, runs and tasks.

Standard deviations are those of the population (`ddof` 0). NaN and infinite values are counted separately and are not
part of any statistic.

Every room above it may import it. It imports none.
"""
