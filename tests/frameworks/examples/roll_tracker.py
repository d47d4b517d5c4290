"""ROLL: its tracker from us, with its configuration."""

from otel_rl.frameworks.roll import create_tracker

config = {"exp_name": "agentic", "track_with": "stdout", "tracker_kwargs": {}}
tracker = create_tracker(config["track_with"], config, **config["tracker_kwargs"])
for step in range(3):
    metrics = {"critic/score/mean": step / 7, "actor/clipfrac@sum": 2.0}
    tracker.log(values=metrics, step=step)
tracker.finish()
