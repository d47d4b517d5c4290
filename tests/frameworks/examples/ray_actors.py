"""Ray: a driver that records, and actors that join its run with one line each."""

import ray

import otel_rl
from otel_rl.frameworks.ray import traced_actor


@ray.remote
@traced_actor(role="rollout")
class RolloutWorker:
    """Generates; each call of a method is a span under the step that it is made in."""

    def generate(self, prompts: list[str]) -> list[str]:
        """Return an answer to each prompt."""
        with otel_rl.current().phase("generate"):
            return [prompt[::-1] for prompt in prompts]


ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
run = otel_rl.init(project="p", id="ray", quiet=True)
workers = [RolloutWorker.remote() for _ in range(2)]
for step in range(3):
    with run.step(step), run.phase("rollout"):
        texts = ray.get([worker.generate.remote(["abc", "de"]) for worker in workers])
    run.log({"reward": sum(len(text) for answers in texts for text in answers)}, step=step)
ray.shutdown()
run.finish()
