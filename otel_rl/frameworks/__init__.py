"""One file per framework: hooks that record it without code changes, and callbacks and loggers that users name.

| a framework file uses | for |
|---|---|
| `patches` | its hooks: `patch(module, patches)` is called when a module of the framework is imported |
| `recording` | the run of one training, with its steps and phases: `Recording`, or `Recordings` by logger |
| `trainings` | which run that is, if a script trains several times |
| `timers` | a framework with named timers, one of which is the step |
| `tracked` | a trainer that logs through a class `Tracking` |

`instrument` calls the hooks that `dialects/*.yaml` name; `capture` records trackers instead of a framework.
docs/how-to/frameworks.md says what is recorded of each framework, and README.md in this directory how to add one.

Users and `cli` import it. It imports `trainer` and below.
"""
