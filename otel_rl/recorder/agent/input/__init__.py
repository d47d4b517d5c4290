"""The input of an agent: journals of this machine, records that others send, and the software of an attempt.

The agent's loop imports it.
"""
