"""The journals of this machine, and the records that other machines send.

The agent's loop imports it.
"""
