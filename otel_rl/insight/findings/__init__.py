"""The findings about a run: one file for each kind. A finding is said only where the evidence carries it."""
