"""Trinity-RFT: its own monitor and otel-rl's (`monitor_type: otel_rl`), from its registry."""

from types import SimpleNamespace

import pandas as pd

from otel_rl.frameworks.instrument import instrument

instrument("trinity")
from trinity.utils.monitor import MONITOR, Monitor, TensorboardMonitor

config = SimpleNamespace(monitor=SimpleNamespace(cache_dir="own"))
place = {"project": "p", "group": "g", "name": "rft", "role": "explorer"}
ours = MONITOR.get("otel_rl")(**place, config={"lr": 0.5})
own = TensorboardMonitor(**place, config=config)  # not from the registry, so it is not recorded
assert isinstance(ours, Monitor)
for step in range(1, 5):
    for monitor in (own, ours):
        monitor.log({"rollout/reward/mean": step / 7, "eval/gsm8k/accuracy/mean@4": 0.25}, step=step)
ours.log({"text": "a", "nothing": None}, step=4)
ours.log_table("experiences", pd.DataFrame([{"prompt": "a", "reward": 1.0}]), step=4)
for monitor in (own, ours):
    monitor.close()
