"""Lightning: otel-rl's logger next to its own, and the callback for steps and phases."""

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from otel_rl.frameworks.lightning import OtelRlCallback, OtelRlLogger


class Module(LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.layer(batch[0]).pow(2).mean())

    def test_step(self, batch, index):
        self.log("test_loss", self.layer(batch[0]).pow(2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


torch.manual_seed(1)
data = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=4)
loggers = [CSVLogger("own")]
callbacks = []
loggers.append(OtelRlLogger(project="p", id="lit", quiet=True, hardware=False))
callbacks.append(OtelRlCallback())
trainer = Trainer(
    max_epochs=2,
    logger=loggers,
    callbacks=callbacks,
    log_every_n_steps=1,
    accelerator="cpu",
    accumulate_grad_batches=2,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
module = Module()
trainer.validate(module, data, verbose=False)
trainer.fit(module, data, data)
trainer.test(module, data, verbose=False)
