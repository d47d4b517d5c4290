"""The report of a run: one HTML file that holds everything and makes no request.

In reading order: `report` reads a run part by part and writes the page, `inline` does it for programs; `moment` is a
run with its parts, `document` the file, `body` its parts, `markup` its elements, and `scripts` joins the modules of
`assets`. `otel-rl ui` serves the same parts and the same modules.

The parts: `verdict`, `reasons` (why slow steps were slow), `steps` (the axis of all), `curves`, `phases`, `measured`,
`engines`, `trajectories`, `samples`, `autopsy` and `about`; `comparison` is a page of its own. `packed` writes
columns for them.

The timeline: `timeline`, its `timeline_spans`, `timeline_lanes`, `timeline_open` and `timeline_columns`.
"""
