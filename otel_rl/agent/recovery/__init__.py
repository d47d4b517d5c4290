"""What an agent does about what is damaged, cannot be stored, or is needed no more.

The agent's loop imports it.
"""
