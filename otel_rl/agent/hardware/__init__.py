"""The hardware poller: GPUs, host, processes, cgroup and inference servers, each measured in a thread of its own.

The agent alone imports it. It imports no other part of the agent.
"""
