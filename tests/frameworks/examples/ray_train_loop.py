"""Ray Train: one line around the training function, which reports its metrics as before. Prints Ray's own record."""

import json
import tempfile
from pathlib import Path

import ray
import ray.train
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from otel_rl.frameworks.ray_train import recorded


def train_loop(config: dict[str, float]) -> None:
    """Fit a linear model; report the loss of each epoch."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(3):
        loss = (model(torch.randn(8, 4)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as directory:
            torch.save(model.state_dict(), Path(directory) / "model.pt")
            metrics = {"loss": loss.item(), "epoch": epoch, "eval": {"accuracy": epoch / 3}}
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(directory))


ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
trainer = TorchTrainer(
    recorded(train_loop, project="p", id="loop", quiet=True, hardware=False),
    train_loop_config={"lr": 0.1},
    scaling_config=ScalingConfig(num_workers=1),
    run_config=RunConfig(storage_path=str(Path("own").absolute())),
)
print(json.dumps([metrics for _, metrics in trainer.fit().best_checkpoints]))
