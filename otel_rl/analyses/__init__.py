"""Conclusions from the records of a run: one file or folder for each analysis, by the contract `otel_rl.analysis`.

Each can be deleted: the agent finds them by the entry point group `otel_rl_analysis`, and then lacks their facts alone.
They import the recorder and not each other; a fact that one has for another is in `otel_rl.analysis.Basis`.
"""
