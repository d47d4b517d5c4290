"""The findings about a run. A finding is said only where the evidence carries it.

One file for each, with a function of the same name; `conclude` in the room above lists them in the order of screens.
`anomalies` is a part of `learning`, and `blamed` one of `texts`.
"""
