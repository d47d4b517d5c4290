"""`otel-rl ui`: one page over all runs of directories, live.

In reading order: `server` listens and makes the link, `site` answers requests from `routes`, `shell` is the page
itself. `index` knows the runs: `tree` finds them, `verdicts` concludes in the background, `run_line` is one in the
list. The parts of a run are those of the report, which is the same page with its data inside.
"""
