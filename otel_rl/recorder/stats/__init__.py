"""Statistics that can be merged over micro-batches, ranks, runs and tasks.

| module | what it computes | who calls it |
|---|---|---|
| `statistics` | mean, std, quantiles and other reducers over values | all below, the agent |
| `pool`, `moments`, `sketch` | the same over pooled observations, in bounded memory | the agent |
| `efficiency` | rates, time per token, MFU, perplexity | the agent; evaluation code |

Standard deviations are those of the population (`ddof` 0). NaN and infinite values are counted separately and are part
of no statistic. The functions for code that evaluates are with the frameworks.

Every room above it may import it. It imports none.
"""
