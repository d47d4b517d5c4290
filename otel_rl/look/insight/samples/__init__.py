"""Recorded texts as samples: what was asked, what the policy wrote, and what it got for that.

In reading order: `sample` has the facts, `trajectories` and `read_samples` read them, `selection` filters and orders,
`highlights` are the samples of a report, `conclude` answers
`otel-rl samples`. `remarks` is what samples show about a run.
"""
