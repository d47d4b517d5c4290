"""Accelerate: our tracker. Its own ones are recorded too with `otel-rl run -- python …`."""

import torch
from accelerate import Accelerator

from otel_rl.frameworks.accelerate import OtelRlTracker

tracker = OtelRlTracker(project="p", id="accelerated", quiet=True, hardware=False)
accelerator = Accelerator(log_with=tracker, project_dir="own", cpu=True)
accelerator.init_trackers("p", config={"lr": 0.1, "layers": 2})
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for n in range(5):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.log({"reward": n / 3, "note": "text", "loss": float("nan") if n == 2 else loss.item()}, step=n * 10)
accelerator.end_training()
