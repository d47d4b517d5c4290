"""The public reader of a run directory.

Viewers and users import it. Nothing that records imports it.
"""
