"""Attacks: another user of the machine, a stranger on the network, and hostile data."""
