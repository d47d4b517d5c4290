"""Fuzzing of everything that reads bytes: `python -m tests.fuzz TARGET`.

A target (`targets/`) feeds bytes to one reader, and raises if the reader breaks its promise. Atheris changes bytes of
real inputs, guided by the code that they reach. `oracle.py` holds the rules for every input, `found.py` the inputs that
once failed.
"""
