"""`otel-rl ui`: one page over all runs of directories, live.

In reading order: `server` listens and makes the link, `site` answers requests from `routes`, `shell` is the page
itself. `index` knows the runs: `tree` finds them, `verdicts` concludes in the background, `run_line` is one in the
list. `run_page` is one run: the parts of its report, which is the same page with its data inside. `run_reading` reads
them again while somebody looks, as `budget` allows, and `run_tail` has the steps since then; `processes_now` is the one
part that a report does not have. `overlay` has the lines of several runs: `step_ranges` queries their `run_ranges`,
`plain_ranges` reads those of a plain history without a query, and `range_cache` keeps them. `compared` says how they
differ. `choice` finds and sorts runs, as `ls` does, and `mark_changes` marks and deletes them, as `tag` and `rm` do.
`kept_files` is the cache on disk.
"""
