"""Two sides of runs, each one run or several: how they differ, how sure that is, and whether it is within gates.

In reading order: `comparison` has the facts, `conclude` finds them. `sides` puts runs on one axis, `difference` tests
their means, `shared` is what all phases have in common, `gates` decide; `sentences` and `texts` are the words.
"""
