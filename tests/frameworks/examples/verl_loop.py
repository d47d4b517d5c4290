"""verl: the loop of its trainer, without a line of otel-rl: `otel-rl run -- python verl_loop.py`."""

import time

from verl.utils.debug import marked_timer
from verl.utils.tracking import Tracking


class Trainer:
    def fit(self):
        logger = Tracking("p", "ppo", ["file", "tensorboard"], {"trainer": {"total_epochs": 2}, "lr": 0.5})
        self.global_steps = 10  # resumed
        for _ in range(5):
            self.global_steps += 1
            metrics, timing_raw = {}, {}
            with marked_timer("start_profile", timing_raw):
                pass
            with marked_timer("step", timing_raw):
                with marked_timer("gen", timing_raw, color="red"):
                    time.sleep(0.02)
                with marked_timer("reward", timing_raw, color="yellow"):
                    pass
                with marked_timer("old_log_prob", timing_raw, color="blue"):
                    pass
                with marked_timer("adv", timing_raw, color="brown"):
                    pass
                with marked_timer("update_actor", timing_raw, color="red"):
                    time.sleep(0.01)
            with marked_timer("testing", timing_raw, color="green"):
                pass
            metrics |= {f"timing_s/{name}": seconds for name, seconds in timing_raw.items()}
            metrics |= {"critic/score/mean": self.global_steps / 7, "actor/pg_loss": -1.5, "note": "text"}
            metrics.pop("note")
            logger.log(data=metrics, step=self.global_steps)
        logger.finish()


Trainer().fit()
