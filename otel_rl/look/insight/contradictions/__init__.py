"""Facts that contradict each other: rules over plain columns, found by shape and by parameters, not by framework.

In reading order: `columns` is what a rule sees, `contradiction` what it returns, `of_…` are the rules, and `rules` is
their list. A rule says nothing unless recorded values cannot all be right, or a recorded parameter explains one.
"""
