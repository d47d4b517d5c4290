"""Why a run is slow, stuck or dead, and why its steps took their time.

In reading order: `answer` has the facts, `of_run` answers for a run, and `conclude` explains steps by the critical
path through ranks, trajectories, queues, engines and weight syncs. `slow_steps` says which steps are explained,
`step_spans` reads their spans, and `clocks` corrects the clocks of machines. `folded_spans`, `recorded_causes` and
`causes` make the graph of what waited for what; `critical_path` walks it back, and `step_paths` does all that for
several steps. `what_if` replays a step with usual times. `sentences` and `texts` are the words.
"""
