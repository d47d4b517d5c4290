"""Repair and removal: items that cannot be encoded, a backlog on another disk, delivered files.

The agent's loop imports it.
"""
