"""Two sides of runs, each one run or several: how they differ, how sure that is, and whether it is within gates."""
