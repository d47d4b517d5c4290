"""Why steps took their time: the critical path through ranks, trajectories, queues, engines and weight syncs."""
