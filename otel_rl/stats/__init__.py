"""Statistics of samples: mergeable over micro-batches and ranks, and over runs and tasks of an evaluation.

Every standard deviation is that of the population (`ddof` 0) unless it is told otherwise. Values that are
NaN or infinite are counted apart and enter nothing.
"""
