"""Statistics that can be merged over micro-batches, ranks, runs and tasks.

| module | what it computes | who calls it |
|---|---|---|
| `statistics` | mean, std, quantiles and other reducers over values | all below, the agent |
| `pool`, `moments`, `sketch` | the same over pooled observations, in bounded memory | the agent |
| `trend` | whether a series grows beyond its noise | the agent |
| `efficiency` | rates, time per token, MFU, perplexity | the agent; evaluation code |
| `at_k` | `pass@k`, `best@k`, `worst@k`, `maj@k` of a task, as in verl and Trinity-RFT | evaluation code |
| `rollup` | experiences to runs, runs to tasks, tasks to a step, with Trinity-RFT's names | evaluation code |
| `groups` | rewards, advantages, entropy and diversity of GRPO groups, as in MaxEnt-GRPO | evaluation code, `convert` |

Nothing in a trainer's path calls the last three: they are functions for the code that evaluates. Standard deviations
are those of the population (`ddof` 0). NaN and infinite values are counted separately and are part of no statistic.

Every room above it may import it. It imports none.
"""
