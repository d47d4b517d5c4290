"""What the machine is asked: GPUs, the host, processes, the cgroup; each in a thread of its own.

The agent alone imports it; it imports no other part of the agent.
"""
