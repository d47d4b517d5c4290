"""Accelerators and memory: what they hold at phase boundaries, their clock, values that lie on them.

`trainer` imports it; torch and JAX are looked up only where the trainer has loaded them.
"""
