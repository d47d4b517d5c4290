"""Accelerate: our tracker. Its own ones are recorded too with `otel-rl run -- python …`."""

from accelerate import Accelerator

from otel_rl.integrations.accelerate import OtelRlTracker

tracker = OtelRlTracker(project="p", id="accelerated", quiet=True, hardware=False)
accelerator = Accelerator(log_with=tracker, project_dir="own", cpu=True)
accelerator.init_trackers("p", config={"lr": 0.1, "layers": 2})
for n in range(5):
    accelerator.log({"reward": n / 3, "note": "text", "loss": float("nan") if n == 2 else 1.0}, step=n * 10)
accelerator.end_training()
