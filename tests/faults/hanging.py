"""Trainers that hang, each in another way, while a test watches what the agent makes of it."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import otel_rl
from otel_rl.recorder.archive.now import read_now
from otel_rl.recorder.archive.reports import reports_of
from otel_rl.recorder.facts.standing import going
from tests.collector import free_port, wait_for

_BEGIN = """
import os, queue, subprocess, sys, threading, time
from pathlib import Path
import otel_rl

def go_on(act):
    def watch():
        while not Path("go").exists():
            time.sleep(0.5)
        act()
    threading.Thread(target=watch, daemon=True).start()

if os.environ["WORLD_SIZE"] == "2":
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
run = otel_rl.init(dir="runs", project="p", id=os.environ.get("OTEL_RL_RUN_ID") or "it", quiet=True, hardware=False)
rank = int(os.environ.get("RANK", 0))
steps, idle, spins = 30, "import time; time.sleep(9999)", "while True: pass"
for n in range(steps):
    with run.step(n), run.phase("generate"):
        time.sleep(0.02)
        run.log({"reward": 0.5})
"""
_HANGS = """
with run.step(steps), run.phase("generate"):
    Path(f"hangs{rank}").touch()
"""
_END = """
for n in range(steps + 1, steps + 61):
    with run.step(n), run.phase("generate"):
        time.sleep(0.25)
run.finish(60)
"""
_EVENT = """
    event = threading.Event()
    go_on(event.set)
    event.wait()
"""
_POLLS = """
    def poll():
        while True:
            time.sleep(0.05)
    for _ in range(16):
        threading.Thread(target=poll, daemon=True).start()
"""
_CHILD = """
    child = subprocess.Popen([sys.executable, "-c", {code}])
    go_on(child.kill)
    child.wait()
"""
_IDLE_CHILDREN = """
    children = [subprocess.Popen([sys.executable, "-c", idle]) for _ in range(16)]
"""
_COLLECTIVE = """
    if rank == 0:
        event = threading.Event()
        go_on(event.set)
        event.wait()
    dist.all_reduce(torch.ones(1))
"""
PROGRAMS = {
    "event": _EVENT,
    "lock": "    lock = threading.Lock()\n    lock.acquire()\n    go_on(lock.release)\n    lock.acquire()\n",
    "queue": "    items = queue.Queue()\n    go_on(lambda: items.put(1))\n    items.get()\n",
    "input": "    input()\n",
    "child": _CHILD.format(code="idle"),
    "spinning child": _CHILD.format(code="spins"),
    "idle children": _IDLE_CHILDREN + _EVENT,
    "polling threads": _POLLS + _EVENT,
    "collective": _COLLECTIVE,
    "command": _EVENT,
}
"""The ways to hang. With `command`, a command of `on_event` computes, and so does what it leaves."""
_COMPUTES = """
import os, time
if not os.fork():
    os.setsid()
end = time.monotonic() + 40
while time.monotonic() < end: pass
"""


class Scenario(NamedTuple):
    """A hang, and the machine that it happens on."""

    way: str  # one of `PROGRAMS`
    load: int  # number of other processes that compute
    goes_on: bool  # whether it goes on in the end; otherwise it is killed

    def __str__(self) -> str:
        return f"{self.way}, load {self.load}, {'goes on' if self.goes_on else 'killed'}"


SCENARIOS = [Scenario(*one) for one in itertools.product(PROGRAMS, (0, 8), (True, False))]


def drawn(seed: int, count: int) -> list[Scenario]:
    """Return some scenarios, each of another way."""
    noise = random.Random(seed)
    return [Scenario(way, 8 * noise.randrange(2), bool(noise.randrange(2))) for way in noise.sample([*PROGRAMS], count)]


class Hanging:
    """A trainer that hangs."""

    def __init__(self, scenario: Scenario, place: Path, stalled_after: float) -> None:
        """Start it; with `stalled_after` 0, deadlines are the learned ones."""
        self.scenario, self.place = scenario, place
        self.run = place / "runs" / "p" / "it"
        self.states = ["live"]
        place.mkdir()
        script = _BEGIN + _HANGS + PROGRAMS[scenario.way] + _END
        world = 2 if scenario.way == "collective" else 1
        environment = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "OTEL_RL_RUN_ID": "it"}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        environment |= {"OTEL_RL_AUTOPSY": "true"}
        environment |= {"OTEL_RL_STALLED_AFTER": str(stalled_after)} if stalled_after else {}
        if scenario.way == "command":
            (place / "computes.py").write_text(_COMPUTES)
            environment |= {"OTEL_RL_ON_EVENT": f"{sys.executable} {place / 'computes.py'}"}
        with (place / "output").open("w") as output:
            self.ranks = [
                subprocess.Popen(
                    [sys.executable, "-c", script],
                    cwd=place,
                    env=os.environ | environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                for rank in range(world)
            ]

    @property
    def has_hung(self) -> bool:
        """Whether all ranks are where they hang."""
        return all((self.place / f"hangs{rank}").exists() for rank in range(len(self.ranks)))

    def sample(self) -> None:
        """Note the state of the run, if it is another one than before; also of a slow process, as `slow`."""
        nows = read_now(self.run)
        state: str = going(reports_of(nows), time.time_ns()).state
        if state == "live" and any(one.kind == "slow" for now in nows for one in now.stalled):
            state = "slow"
        if [state] != self.states[-1:]:
            self.states.append(state)

    def end(self) -> None:
        """Let it go on, or kill it."""
        if not self.scenario.goes_on:
            for one in self.ranks:
                one.kill()
        (self.place / "go").touch()
        for one in self.ranks:
            if one.stdin is not None and self.scenario.goes_on:
                one.stdin.write(b"\n")
                one.stdin.flush()

    def check(self, expected: list[str]) -> list[str]:
        """Return what is wrong: states that flap, events and autopsies that are repeated, records that are missing."""
        for one in self.ranks:
            one.communicate(timeout=120)
        wait_for(lambda: all(now.state == "ended" for now in read_now(self.run)), "its agent does not end", 120)
        wrong = [] if self.states == expected else [f"states {self.states}"]
        reader = otel_rl.open_run(self.run)
        events = reader.sql("SELECT name, attributes FROM events WHERE name LIKE 'rl.phase.%'")
        names = [
            str(name)
            for name, text in zip(events["name"], events["attributes"], strict=True)
            if '"slow"' not in str(text)
        ]
        resumed = self.scenario.goes_on
        if sorted(names) != ["rl.phase.resumed"] * resumed + ["rl.phase.stalled"]:
            wrong.append(f"events {names}")
        hangs = reader.sql("SELECT rank, ending FROM hangs")
        endings = [*zip(hangs["rank"].tolist(), hangs["ending"].tolist(), strict=True)]
        ranks = [rank for rank, _ in endings]  # both, if they are at one place
        if len({*ranks}) < len(ranks) or {*endings} != {
            (rank, "resumed" if resumed else "over") for rank in {0, *ranks}
        }:
            wrong.append(f"hangs {endings}")
        autopsies = len([*(self.run / "autopsy").glob("*.txt")])
        if not 1 <= autopsies <= 2 + (not resumed):  # the last one is about the death
            wrong.append(f"{autopsies} autopsies")
        return [f"{self.scenario}: {one}" for one in wrong]

    def kill(self) -> None:
        """Kill what is left of it, with its children."""
        for one in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.communicate()


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    """Let processes compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in processes:
            one.kill()
            one.wait()
