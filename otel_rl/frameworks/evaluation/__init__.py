"""Functions for code that evaluates, with the names and the definitions of the frameworks that have them.

| module | what it computes |
|---|---|
| `at_k` | `pass@k`, `best@k`, `worst@k`, `maj@k` of a task, as in verl and Trinity-RFT |
| `rollup` | experiences to runs, runs to tasks, tasks to a step, with Trinity-RFT's names |
| `groups` | rewards, advantages, entropy and diversity of GRPO groups, as in MaxEnt-GRPO |
| `printing` | validation samples in a terminal |

Nothing in a trainer's path or in the agent calls them. Standard deviations are those of the population (`ddof` 0).
"""
