"""Verdicts over evidence that is written down: no process is started."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from otel_rl.autopsy.__main__ import event_of
from otel_rl.autopsy.conclude import autopsy, conclude
from otel_rl.autopsy.evidence import ConnectionSeen, Frame, Kernel, MachineSeen, ProcessSeen, Thread
from otel_rl.autopsy.verdict import verdict_of
from otel_rl.recorder.archive.autopsies import read_autopsies
from otel_rl.recorder.archive.autopsy_text import lines_of
from otel_rl.recorder.archive.now import Now, Wait
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.signs import Stalled
from tests.autopsy.written import AT, WAITS, S, machine, now, seen, stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Outcome


def kind_and_who(machines: Sequence[MachineSeen], nows: Sequence[Now]) -> tuple[str, tuple[str, ...]]:
    """Return the cause of a run about which nobody has a suspicion."""
    found = verdict_of(machines, nows, AT)
    return found.kind, found.who


def test_ranks_that_wait_for_a_silent_machine() -> None:
    """A run that waits for it is late, and the evidence names it; what its ranks do is not known."""
    silent = Stalled(
        kind="silent", scope="job", rank=1, host="b", since_unix_nano=1, deadline_s=10.0, silent_since_unix_nano=AT
    )
    ranks = machine(seen(0, stack("step", call="all_reduce")))
    found = verdict_of([ranks], [replace(now((0, "", "update")), stalled=(silent,))], AT)

    assert found.kind == "network"
    assert found.evidence[0] == f"nothing arrives from b since {wording.clock(AT)}; rank 1 may be well"


def test_ranks_of_several_machines_are_one_graph() -> None:
    """The rank that is missing is on the other machine, whose name the verdict has."""
    machines = [
        machine(seen(0, stack("step", call="all_reduce"))),
        machine(seen(1, stack("work"), kernel=Kernel(state="T")), host="b"),
    ]
    nows = [now((0, "", "update")), now((1, "", "generate"), host="b")]

    found = verdict_of(machines, nows, AT)
    assert (found.kind, found.who) == ("stopped", ("rank 1 (b)",))
    assert found.sentence == (
        "Rank 1 (b) is stopped (SIGSTOP) at train.py:7 (work) in generate, for 1 min; "
        "rank 0 (a) waits for it in all_reduce."
    )


def test_a_machine_that_nobody_looked_at() -> None:
    """Its ranks are missing from the collective, and the verdict says that they were not looked at."""
    nows = [now((0, "", "update")), now((1, "", "generate"), host="b")]
    found = verdict_of([machine(seen(0, stack("step", call="all_reduce")))], nows, AT)

    assert (found.kind, found.who) == ("unknown", ("rank 1 (b)",))
    assert "was not looked at" in found.sentence


def test_a_process_that_is_gone_before_its_agent_knows_it() -> None:
    """It died, since its machine was looked at; one that lives in another container was only not seen."""
    nows = [now((0, "", "update"), (1, "", "generate"))]
    seen_here = machine(seen(0, stack("step", call="all_reduce")))

    assert kind_and_who([seen_here], nows) == ("died", ("rank 1",))
    assert kind_and_who([msgspec.structs.replace(seen_here, hidden=(101,))], nows) == ("unknown", ("rank 1",))


def test_a_wait_that_was_recorded() -> None:
    """Where the stack does not say for whom a process waits, what it recorded does."""
    result = Thread((Frame("/usr/lib/python3.11/concurrent/futures/_base.py", 1, "result"),))
    processes = seen(0, result), seen(1, stack("work"), kernel=Kernel(state="T"), role="rollout")
    wait = Wait(waiter="rank 0", kind="ticket", subject="7", debtors=("rollout 1", "nobody"), since_unix_nano=AT)
    agent = msgspec.structs.replace(now((0, "", "generate"), (1, "rollout", "")), waits=(wait,))
    found = verdict_of([machine(*processes)], [agent], AT)

    assert (found.kind, found.who) == ("stopped", ("rollout 1",))
    assert len(found.consequences) == 1


def test_a_rank_that_drops_all_trajectories() -> None:
    """It is the cause if it still drops some, has trained on none, and its phase is overdue."""
    ranks = machine(seen(0, stack("take")), seen(1, stack("step", call="all_reduce")))
    agent = now((0, "", "dequeue"), (1, "", "update"))

    def dropped(at: int) -> Now:
        taker = msgspec.structs.replace(
            agent.processes[0], dropped={"aborted": 12, "stale": 1400}, dropped_unix_nano=AT - at * S
        )
        return msgspec.structs.replace(agent, processes=[taker, agent.processes[1]])

    found = verdict_of([ranks], [dropped(1)], AT)
    assert (found.kind, found.who) == ("drops", ("rank 0",))
    assert found.sentence == (
        "Rank 0 drops all trajectories (1,400 as too old and 12 as aborted) at train.py:7 (take) in dequeue, for 1 min;"
        " rank 1 waits for it in all_reduce."
    )
    assert kind_and_who([ranks], [dropped(50)])[0] == "native"


def test_the_event_of_a_verdict() -> None:
    """It has the verdict, each text in one line, and fits into a pipe."""
    nows = [now((0, "", "update"), (1, "", "generate"))]
    ranks = machine(seen(0, stack("step", call="all_reduce")), seen(1, stack("work"), kernel=Kernel(state="T")))
    found = conclude(Path("/run"), [ranks], nows, AT, "stalled")
    event = event_of(msgspec.structs.replace(found, file="/run/autopsy/1.txt"))

    assert (event.name, event.time_unix_nano) == ("rl.autopsy.concluded", AT)
    assert event.attributes == {
        "host.name": socket.gethostname(),
        "rl.autopsy.cause": "stalled",
        "rl.autopsy.kind": "stopped",
        "rl.autopsy.verdict": found.verdict.sentence,
        "rl.autopsy.sure": "certain",
        "rl.autopsy.culprits": ["rank 1"],
        "rl.autopsy.advice": found.verdict.advice,
        "rl.autopsy.file": "/run/autopsy/1.txt",
    }
    long = "\x1b\n\u202e" * 5000
    verdict = msgspec.structs.replace(found.verdict, sentence=long, who=(long,) * 100, advice=long)
    raw = msgspec.json.encode(event_of(msgspec.structs.replace(found, verdict=verdict, file=long)))
    assert len(raw) < 1 << 16
    assert "\x1b" not in str(msgspec.json.decode(raw))


def test_a_server_that_is_gone() -> None:
    """A wait that can never end is named before it is overdue, also where a client tries again and again."""
    sleeps = Kernel(state="S", syscall="clock_nanosleep")
    ended = ProcessSeen(pid=9, parent=100, kernel=Kernel(state="Z"))
    queue = Thread((Frame("/usr/lib/python3.11/queue.py", 1, "get"),))
    waits = [
        Wait(
            waiter=one,
            kind="request",
            subject="x",
            debtors=(owes,),
            since_unix_nano=AT,
            cause="dead",
            culprits=("h:80",),
        )
        for one, owes in (("rank 0", "rollout 1"), ("rollout 1", "h:80"))
    ]
    agent = msgspec.structs.replace(now((0, "", "generate"), (1, "rollout", ""), age=4), waits=tuple(waits))
    found = verdict_of(
        [machine(seen(0, queue), seen(1, stack("again"), kernel=sleeps, role="rollout"), ended)], [agent], AT
    )

    assert (found.kind, found.who) == ("silent", ("the server at h:80",))
    assert found.sentence == "The server at h:80 is gone: nobody listens there; rank 0 and rollout 1 wait for it."


def test_a_circle_that_was_recorded() -> None:
    """It is certain, whatever the stacks look like."""
    waits = [
        Wait(waiter=one, kind="ticket", subject="x", debtors=(other,), since_unix_nano=AT, cause="circle")
        for one, other in (("rank 0", "rank 1"), ("rank 1", "rank 0"))
    ]
    agent = msgspec.structs.replace(now((0, "", "a"), (1, "", "b"), age=4), waits=tuple(waits))
    found = verdict_of([machine(seen(0, stack("work")), seen(1, stack("work")))], [agent], AT)

    assert (found.kind, found.sure, found.sentence) == ("circle", "certain", "Rank 0 and rank 1 wait for each other.")


@pytest.mark.parametrize("outcome", ["lost", "failed", "cancelled"])
def test_a_rank_that_is_missing(outcome: Outcome) -> None:
    """A rank that waits for nobody known waits for the one that died, unless it went on, or that one has come back."""
    queue = Thread((Frame("/usr/lib/python3.11/queue.py", 1, "get"),))
    nows = [now((0, "", "update"), (1, "", "generate"), age=4, outcome=outcome)]
    again = msgspec.structs.replace(nows[0].processes[1], pid=301, outcome=None)
    back = msgspec.structs.replace(nows[0], processes=[*nows[0].processes, again])
    found = verdict_of([machine(seen(0, queue))], nows, AT)

    assert (found.kind, found.who) == ("died", ("rank 1",))
    assert ", 4 s ago; rank 0 waits for it." in found.sentence
    later = [msgspec.structs.replace(one, step_started_unix_nano=AT - n * S) for n, one in enumerate(nows[0].processes)]
    goes_on = msgspec.structs.replace(nows[0], processes=later)
    assert kind_and_who([machine(seen(0, queue))], [goes_on])[0] == "well"
    returned = ProcessSeen(pid=301, rank=1, threads=(stack("work"),), kernel=WAITS)
    assert kind_and_who([machine(seen(0, queue), returned)], [back])[0] == "well"


def test_how_a_process_died_is_in_the_sentence() -> None:
    """In the words of all screens, with its phase and the time of its end."""
    queue = Thread((Frame("/usr/lib/python3.11/queue.py", 1, "get"),))
    both = now((0, "", "update"), (1, "", ""), age=9, outcome="lost")
    how = {"cause": "oom_kill", "ended_phase": "generate", "ended_unix_nano": AT - 5 * S}
    killed = msgspec.structs.replace(both.processes[1], phases=(), **how)
    found = verdict_of(
        [machine(seen(0, queue))], [msgspec.structs.replace(both, processes=[both.processes[0], killed])], AT
    )

    assert found.sentence == (
        "Rank 1 was killed by the kernel for lack of host memory in generate, 5 s ago; rank 0 waits for it."
    )


def test_the_caller_of_a_place() -> None:
    """A line of a small helper is named with the line of the other file that called it."""
    helper = Frame("/home/me/lib.py", 3, "sleep_forever"), Frame("/home/me/lib.py", 9, "retry")
    sleeps = Thread((*helper, *stack("serve_next_request").frames))
    found = verdict_of([machine(seen(0, sleeps))], [now((0, "", "update"))], AT)

    assert " at lib.py:3 (sleep_forever) called from train.py:7 (serve_next_request) in update" in found.sentence


def test_two_threads_that_wait_for_locks() -> None:
    """Both places are named: each thread may hold what the other one wants."""
    locks = [
        Thread((Frame("/usr/lib/python3.11/threading.py", 1, "acquire"), Frame("train.py", line, "step")))
        for line in (4, 9)
    ]
    found = verdict_of([machine(seen(0, *locks))], [now((0, "", "generate"))], AT)

    assert found.sentence.startswith(
        "Rank 0 waits for a lock at train.py:4 (step) and, in another thread, at train.py:9 (step) in generate"
    )


def test_the_paths_of_libraries_are_short(tmp_path: Path) -> None:
    """A stack fits into a terminal; the files of the user have their whole paths."""
    thread = Thread(
        (
            Frame("/root/.pyenv/lib/python3.11/queue.py", 1, "get"),
            Frame("/root/.pyenv/lib/python3.11/site-packages/torch/a.py", 2, "b"),
            Frame("/home/me/train.py", 3, "step"),
        )
    )
    found = conclude(tmp_path, [machine(seen(0, thread))], [now((0, "", "a"))], AT)

    assert found.groups[0].stack == (
        "python3.11/queue.py:1 get",
        "site-packages/torch/a.py:2 b",
        "/home/me/train.py:3 step",
    )


def test_two_threads_of_one_rank() -> None:
    """Both ranks are in the same call, but one has a second thread in another one."""
    one, two = stack("step", call="all_reduce"), stack("sync", call="broadcast", line=9)
    found = verdict_of([machine(seen(0, one), seen(1, one, two))], [now((0, "", "update"), (1, "", "update"))], AT)

    assert found.kind == "mismatch"
    assert "all_reduce at train.py:7 (step) and broadcast at train.py:9 (sync)" in found.sentence


def test_the_first_failure_comes_first() -> None:
    """A rollout worker that died is the cause; the rank that waits for its queue is a consequence."""
    queue = Thread((Frame("/usr/lib/python3.11/queue.py", 1, "get"), Frame("/home/me/train.py", 5, "take")))
    nows = [now((0, "", "generate"), (0, "rollout", ""), outcome="lost")]
    found = verdict_of([machine(seen(0, queue))], nows, AT)

    assert (found.kind, found.who) == ("died", ("rollout 0",))
    assert found.consequences == ("rank 0 waits for a queue at train.py:5 (take)",)


def test_what_is_certain_outranks_what_is_likely() -> None:
    """A worker that ended before its time is recorded; a rank that waits for a disk is inferred."""
    queue = Thread((Frame("/usr/lib/python3.11/queue.py", 1, "get"), Frame("/home/me/train.py", 5, "take")))
    disk = seen(1, stack("save"), kernel=Kernel(state="D", wchan="nfs_wait", syscall="write"))
    nows = [now((0, "", "generate"), (1, "", "update"), (0, "rollout", ""), outcome="finished")]
    found = verdict_of([machine(seen(0, queue), disk)], nows, AT)

    assert (found.kind, found.sure) == ("left", "certain")


def test_a_server_that_does_not_read() -> None:
    """The evidence says how many bytes it has not read."""
    asks = Thread((Frame("/usr/lib/python3.11/http/client.py", 1, "getresponse"), Frame("train.py", 5, "ask")))
    rank = seen(0, asks, connections=(ConnectionSeen(peer="127.0.0.1:8000", pid=9, peer_unread=312),))
    server = ProcessSeen(pid=9, command="vllm serve", kernel=Kernel(state="S", syscall="futex"))
    found = verdict_of([machine(rank, server)], [now((0, "", "generate"))], AT)

    assert found.kind == "no answer"
    assert found.who == ("the server at 127.0.0.1:8000 (vllm serve)",)


def test_a_phase_that_is_not_overdue() -> None:
    """The same stacks say nothing before the time: ranks wait for each other in every step."""
    machines = [machine(seen(0, stack("step", call="all_reduce")), seen(1, stack("work")))]

    assert kind_and_who(machines, [now((0, "", "update"), (1, "", "generate"), age=4)])[0] == "well"
    assert kind_and_who(machines, [now((0, "", "update"), (1, "", "generate"), age=40)]) == ("native", ("rank 1",))


@pytest.mark.parametrize("phase", ["async_barrier", "wait_for_policy", "get_batch"])
def test_a_process_that_waits_by_design(phase: str) -> None:
    """A process with a role that is idle is not the cause, however it waits; the rank that works is."""
    waits = Thread((Frame("/usr/lib/python3.11/threading.py", 1, "acquire"), Frame("train.py", 7, "take")))
    machines = [machine(seen(0, stack("work")), seen(0, waits, role="orchestrator"))]

    assert kind_and_who(machines, [now((0, "", "update"), (0, "orchestrator", phase))]) == ("native", ("rank 0",))


def test_nothing_is_known(tmp_path: Path) -> None:
    """Without processes, agents and machines it says that nobody lives."""
    assert conclude(tmp_path, [machine()], [], AT).verdict.kind == "ended"
    assert conclude(tmp_path, [], [], AT, "suspicion").verdict.kind == "ended"


def test_hostile_names_do_nothing() -> None:
    """Names of functions, files, phases, commands and hosts cannot act on a terminal, nor begin a line."""
    evil = "\x1b[2J\nrank 9 is well\u202e"
    thread = Thread((Frame(f"/home/{evil}.py", 1, evil, evil),), evil)
    process = seen(0, thread, command=evil, missing=evil)
    found = conclude(Path("/run"), [machine(process, host=evil)], [now((0, "", evil), host=evil)], AT, "a test")
    text = [line for _, line in lines_of(found)]

    assert not [line for line in text for one in line if one in "\x1b\n\u202e"]
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


def test_other_machines_that_share_the_directory(tmp_path: Path) -> None:
    """The last autopsy joins what others have seen within two minutes; damaged and older evidence is left out."""
    place = tmp_path / "archive" / "a"
    place.mkdir(parents=True)
    (place / "now.json").write_bytes(msgspec.json.encode(now((1, "", "generate"), host="far")))
    for name, evidence in (
        ("20260101T000000Z/far.json", msgspec.json.encode(machine(host="far"))),
        ("20260102T000000Z/broken.json", b"{"),
    ):
        file = tmp_path / "autopsy" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(evidence)

    assert autopsy(tmp_path).hosts == (socket.gethostname(),)

    recent = msgspec.structs.replace(machine(host="far"), time_unix_nano=time.time_ns())
    (tmp_path / "autopsy" / "20260101T000000Z" / "far.json").write_bytes(msgspec.json.encode(recent))
    found = autopsy(tmp_path)
    assert found.hosts == (socket.gethostname(), "far")
    assert Path(found.file).read_text().splitlines()[1] == found.verdict.sentence
    assert read_autopsies(tmp_path)[0].time_unix_nano == found.time_unix_nano


def test_a_run_that_cannot_be_written(tmp_path: Path) -> None:
    """The verdict is shown all the same, and says why it is not kept."""
    (tmp_path / "autopsy").write_text("in the way")
    found = autopsy(tmp_path)

    assert found.verdict.kind == "ended"
    assert found.file == ""
    assert any(one.startswith("nothing is written") for one in found.missing)
