"""Accelerators and host memory: memory at phase boundaries, phase times and values of devices, out-of-memory reports.

`trainer` imports it. It uses torch or JAX only where the trainer has loaded them.
"""
