"""The hardware poller: GPUs, host, processes and cgroup, each measured in a thread of its own.

The agent alone imports it. It imports no other part of the agent.
"""
