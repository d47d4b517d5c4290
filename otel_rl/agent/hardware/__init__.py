"""Measures GPUs, host, processes and cgroup, in the agent; each source in a thread of its own."""
