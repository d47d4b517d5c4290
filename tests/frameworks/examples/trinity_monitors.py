"""Trinity-RFT: its own monitor and otel-rl's (`monitor_type: otel_rl`), from its registry."""

from types import SimpleNamespace

from otel_rl.integrations.instrument import instrument

instrument("trinity")
from trinity.utils.monitor import MONITOR, Monitor

config = SimpleNamespace(monitor=SimpleNamespace(cache_dir="own"))
place = {"project": "p", "group": "g", "name": "rft", "role": "explorer"}
ours = MONITOR.get("otel_rl")(**place, config={"lr": 0.5})
own = MONITOR.get("tensorboard")(**place, config=config)
assert isinstance(ours, Monitor)
for step in range(1, 5):
    for monitor in (own, ours):
        monitor.log({"rollout/reward/mean": step / 7, "eval/gsm8k/accuracy/mean@4": 0.25}, step=step)
for monitor in (own, ours):
    monitor.close()
