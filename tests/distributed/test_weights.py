"""A trainer and an engine in two processes, with a transformer whose weights are sent well, and then in wrong ways."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import otel_rl
from otel_rl.look.insight import facts_of
from tests.processes import run_python
from tests.real_parts import needs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs("torch"), pytest.mark.slow, pytest.mark.timeout(180)]

SCRIPT = """
import multiprocessing, os
import torch
import otel_rl
from otel_rl.recorder.directory.agent_start import end_agents

def serve(variables, syncs, done):
    os.environ.update(variables)
    run = otel_rl.init(role="rollout")
    held = {}
    while (sync := syncs.get()) is not None:
        version, weights = sync
        held |= {name: one.to(torch.bfloat16) for name, one in weights.items()}
        run.weights(version, held)
        done.put(version)
    run.finish(60)

def main():
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    context = multiprocessing.get_context("spawn")
    syncs, done = context.Queue(), context.Queue()
    run = otel_rl.init(dir="runs", project="p", id="i", exporters=[], hardware=False, quiet=True)
    engine = context.Process(target=serve, args=(run.environment(), syncs, done))
    engine.start()
    names = [name for name, _ in model.named_parameters()]
    q = "layers.1.self_attn.in_proj_weight"
    left_out = {2: {"layers.2.linear1.weight"}, 4: set(names[len(names) // 2:]), 6: set(names)}
    for version in range(10):
        with run.step(version):
            loss = model(torch.randn(4, 5, 16)).square().mean() + sum(p.sum() for p in model.parameters())
            loss.backward()
            optimizer.step()
            run.weights(version, model.named_parameters())
            sent = {name: one.detach().clone() for name, one in model.named_parameters()}
            sent = {name: one for name, one in sent.items() if name not in left_out.get(version, ())}
            if version == 8:
                sent[q] = sent[q].roll(24, 0)  # the shard of another rank
            if version == 9:
                sent["layers.0.linear1.weight"] += 0.1  # an adapter that the trainer has not merged
            syncs.put((version, sent))
            done.get()
    syncs.put(None)
    engine.join()
    assert run.finish(60)
    end_agents(60)
    print(run.dir)

if __name__ == "__main__":
    main()
"""


def test_each_wrong_sync_is_found_at_once(tmp_path: Path) -> None:
    """A tensor left out, half of a sync, none at all, a wrong shard, an adapter; casts to bf16 are never blamed."""
    (tmp_path / "train.py").write_text(SCRIPT)
    printed = run_python("import runpy; runpy.run_path('train.py', run_name='__main__')", tmp_path)
    run = otel_rl.open_run(printed.splitlines()[-1])
    found = run.sql("SELECT name, attributes FROM events WHERE name LIKE 'rl.policy.%' ORDER BY time_unix_nano")
    told = [json.loads(one) for one in found["attributes"]]

    assert set(found["name"]) == {"rl.policy.diverged"}
    assert [(one["rl.policy.version"], one.get("rl.weights.held_version")) for one in told] == [
        *((2, None), (4, None), (6, 5), (8, None), (9, None)),
    ]
    assert [one["rl.weights.differing"] for one in told] == [1, 18, 36, 1, 1]
    assert told[0]["rl.weights.tensor"] == "layers.2.linear1.weight"
    assert {(one["rl.role"], one["rl.weights.side"], one["rl.weights.dtype"]) for one in told} == {
        ("rollout", "engine", "bfloat16")
    }
    (finding,) = [one for one in facts_of(run).findings if one.kind == "mismatch"]
    assert finding.sentence.startswith("1 of 36 tensors of version 2 of rollout 0 are still those of version 1: layers")
