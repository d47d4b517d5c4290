"""The recorder: from the calls of a trainer to the rows, spans and events that exporters get.

It imports no wing (`analyses`, `frameworks`, `serve`, `autopsy`, `look`, `cli`, `demo`). It finds the parts of wings
that it starts by entry points. Its rooms, from top to bottom; a room imports those below it: `agent`, `archive` and
`otlp`, `trainer`, `delivery`, `devices`, `directory`, `settings`, `journal`, `files`, `convert`, `stats`, `facts`,
`errors`, `secrets`, `interrupts`.
"""
