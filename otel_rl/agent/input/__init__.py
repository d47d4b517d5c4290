"""What comes in: the journals of this machine, and what other machines recorded.

The agent's loop imports it.
"""
