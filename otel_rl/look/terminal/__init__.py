"""Runs in a terminal: `otel-rl ls` and `otel-rl top`.

Everything is drawn as lines of styled spans, by functions that know no terminal. They are printed as they are, or
shown by an application of Textual, which only adds keys and a clock.

In reading order: `past` reads the archive, `scene` is it with what agents wrote last, the input of a screen.
`overview` is the first screen, `detail` those inside of a run, `gauges` GPUs and hosts, `listing` many runs; they
draw with `drawing` and `words`. `pages` are the places that a reader can be at, and `watched` says which part of a
run is read when, with `reading` for the archive. `app` is the application, on a `canvas`; `show` starts them.
`activities` says what each process does now, `otel-rl ui` too. `comparison`, `debts` (waits), `reasons` (`why`) and
`samples` print answers.
"""
