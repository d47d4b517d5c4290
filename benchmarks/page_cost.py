"""The page: CPU, bytes and delays of `otel-rl ui` over many, long, wide and live runs.

Run with `python -m benchmarks page`, on request only: it writes archives of 400 MB. `PAGE_ARCHIVES=DIRECTORY` keeps
them. CPU is that of the server, which is a process of its own; each table says what the requests were.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import msgspec
import numpy as np
import psutil

from benchmarks import page_archives
from benchmarks.tables import Cell, Table
from otel_rl.look.insight.conclude import facts_of_recorded
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.reader.runs import open_run
from otel_rl.look.ui import changes
from otel_rl.look.ui.kept_files import VERDICT, cache_directory, keep, key_of
from otel_rl.look.ui.verdicts import verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_WATCHED_S, _IDLE_S, _END_S = 30.0, 10.0, 900.0
_PAUSE_S, _SETTLED_S, _BEGUN_S = 1.0, 5.0, 12.0
_NOTE = """\
The first rows of each group have no cache of values; verdicts are kept. The runs of an overlay are copies of one run, \
which compress better than others. CPU is in steps of 0.01 s."""
_TRAINER = """
import sys, time, otel_rl
run = otel_rl.init(dir=sys.argv[1], project="page", name="live", quiet=True, hardware=False, exporters=[])
step, end = 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    with run.step(step), run.phase("update_actor"):
        time.sleep(0.1)
        run.log({"logged_at": time.time(), **{f"train/extra_{number}": float(number) for number in range(19)}})
    step += 1
run.finish(30)
"""


class _Used(NamedTuple):
    """The cost of an answer: CPU of the server, and bytes on the wire."""

    cpu_s: float
    wall_s: float
    packed: int
    tag: str


class _Server:
    """A server of the page in a process of its own."""

    def __init__(self, link: str, process: psutil.Process) -> None:
        address, _, self._token = link.partition("#token=")
        self._port = int(address.rpartition(":")[2].rstrip("/"))
        self._process = process

    def cpu_s(self) -> float:
        """Return the CPU seconds of the server until now."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def mib(self) -> float:
        """Return its memory."""
        return float(self._process.memory_info().rss / 2**20)

    def get(self, path: str, tag: str = "") -> tuple[int, bytes, str]:
        """Return the status, the bytes on the wire and the tag of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_END_S)
        sent = {"Authorization": f"Bearer {self._token}", "Accept-Encoding": "gzip"}
        connection.request("GET", path, headers=sent | ({"If-None-Match": tag} if tag else {}))
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body, answer.getheader("ETag") or ""

    def value(self, path: str) -> Any:
        """Return the value of an answer; `None` if there is none."""
        status, body, _ = self.get(path)
        if status != 200:
            return None
        return json.loads(gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body)

    def used(self, path: str, tag: str = "") -> _Used:
        """Return what an answer takes."""
        began, wall = self.cpu_s(), time.perf_counter()
        _, body, tag = self.get(path, tag)
        return _Used(self.cpu_s() - began, time.perf_counter() - wall, len(body), tag)

    def until(self, holds: Callable[[], bool]) -> float:
        """Wait until something holds, and return the CPU seconds that the server has used by then."""
        end = time.monotonic() + _END_S
        while not holds() and time.monotonic() < end:
            time.sleep(_PAUSE_S)
        return self.cpu_s()


def measure() -> list[Table]:
    """Return what the page costs."""
    with tempfile.TemporaryDirectory(prefix="otel-rl-benchmark-") as temporary:
        place = Path(temporary)
        kept = Path(os.environ.get("PAGE_ARCHIVES", place / "archives"))
        rows = [*_list(page_archives.many(kept), place), *_overlay(page_archives.long(kept), place)]
        rows += _wide(page_archives.wide(kept), place)
        head = ["what", "CPU, s", "wall, s", "kB on the wire", "MiB of the server"]
        return [Table("Answers", head, rows, _NOTE), _live(place)]


@contextmanager
def _served(runs: Path, place: Path, cache: str) -> Iterator[_Server]:
    environment = os.environ | {"XDG_CACHE_HOME": str(place / cache)}
    command = [sys.executable, "-m", "otel_rl.cli", "ui", str(runs), "--port", "19470"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield _Server(process.stdout.readline().strip(), psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait()


def _list(runs: Path, place: Path) -> Iterator[list[Cell]]:
    _prime(runs, place / "list")
    with _served(runs, place, "list") as server:
        first = server.used("/runs")
        yield [f"list of {page_archives.MANY:,} runs, first", *first[:2], first.packed / 1e3, server.mib()]
        server.until(lambda: all(run["has_verdict"] for run in server.value("/runs")["runs"]))
        time.sleep(_PAUSE_S)
        again = server.used("/runs")
        yield ["whole list, again", *again[:2], again.packed / 1e3, server.mib()]
        cursor, began = server.value("/runs")["cursor"], server.cpu_s()
        for _ in range(int(_IDLE_S)):
            time.sleep(_PAUSE_S)
            last = server.used(f"/runs?cursor={cursor}")
        share = (server.cpu_s() - began) / _IDLE_S
        yield ["list that one page watches, each second", share, last.wall_s, last.packed / 1e3, server.mib()]


def _prime(runs: Path, cache: Path) -> None:
    """Keep the verdict of each run: to read a thousand of them takes minutes, once."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    directory = cache_directory()
    recorded = RecordedRun(open_run(runs / "run0"))
    verdict = verdict_of(recorded, facts_of_recorded(recorded), ())
    for run in runs.iterdir():
        own = msgspec.structs.replace(verdict, fingerprint=changes.of_facts(run, is_over=True))
        keep(directory, key_of(run), VERDICT, msgspec.json.encode(own))


def _overlay(runs: Path, place: Path) -> Iterator[list[Cell]]:
    what = f"{page_archives.LONG} runs of {page_archives.STEPS:,} steps, 8 panels"
    _prime(runs, place / "overlay")
    for name in ("no cache", "cache on disk"):
        with _served(runs, place, "overlay") as server:
            keys = [run["key"] for run in server.value("/runs")["runs"]]
            asked = f"/curves?{urlencode({'runs': ','.join(keys)})}"
            first = server.used(asked)
            yield [f"{what}, {name}", *first[:2], first.packed / 1e3, server.mib()]
            again = server.used(asked)
            yield ["the same, again", *again[:2], again.packed / 1e3, server.mib()]
            known = server.used(asked, again.tag)
            yield ["the same, which the browser has", *known[:2], known.packed / 1e3, server.mib()]


def _wide(runs: Path, place: Path) -> Iterator[list[Cell]]:
    with _served(runs, place, "wide") as server:
        (key,) = (run["key"] for run in server.value("/runs")["runs"])
        began, wall = server.cpu_s(), time.perf_counter()
        used = server.until(lambda: "curves" in server.value(f"/run/{key}")["parts"]) - began
        wall = time.perf_counter() - wall
        answer = server.used(f"/run/{key}/part/curves")
        what = f"curves of {page_archives.STEPS:,} steps of {page_archives.RANKS} ranks, no cache"
        yield [what, used + answer.cpu_s, wall, answer.packed / 1e3, server.mib()]


def _live(place: Path) -> Table:
    """Return how late a value is in the answers, and what watching costs."""
    rows: list[list[Cell]] = []
    for pages in (1, 20):
        trainer = [sys.executable, "-c", _TRAINER, str(place / f"live{pages}"), str(_WATCHED_S + 60)]
        with subprocess.Popen(trainer, stdout=subprocess.DEVNULL) as process:
            try:
                runs = place / f"live{pages}"
                while not [*runs.glob("*/*/run.json")]:
                    time.sleep(_PAUSE_S)
                time.sleep(_BEGUN_S)
                with _served(runs, place, f"live{pages}") as server:
                    rows.append(_watched(server, pages))
            finally:
                process.terminate()
    head = ["pages", "values", "median delay, s", "p95, s", "CPU of the server, % of a core", "MiB of the server"]
    note = "Ten steps of 20 values a second. From `run.log` to the answer with the value, asked for each second."
    return Table("A run that goes on", head, rows, note)


def _watched(server: _Server, pages: int) -> list[Cell]:
    """Ask as so many pages do: for the page each second, for parts that have changed, and for what follows them."""
    server.until(lambda: bool(server.value("/runs")["runs"]))
    (key,) = (run["key"] for run in server.value("/runs")["runs"])
    server.until(lambda: "timeline" in server.value(f"/run/{key}")["parts"])
    known: list[dict[str, str]] = [{} for _ in range(pages)]
    have, delays, seen = [0] * pages, list[float](), 0.0
    start, began = time.monotonic(), server.cpu_s()
    while time.monotonic() < start + _WATCHED_S:
        due = time.monotonic() + _PAUSE_S
        for page in range(pages):
            now = server.value(f"/run/{key}")
            if now["parts"].get("steps") != known[page].get("steps"):
                have[page] = 0
            for name, digest in now["parts"].items():
                if known[page].get(name) != digest:
                    server.get(f"/run/{key}/part/{name}")
            known[page] = now["parts"]
            if now["tail"] > have[page]:
                values = server.value(f"/run/{key}/tail?from={have[page]}")["values"]["logged_at"]
                have[page] += len(values)
                fresh = [at for at in values if page == 0 and at > max(seen, _settled(start))]
                delays += [time.time() - at for at in fresh]
                seen = max([seen, *fresh])
        time.sleep(max(0.0, due - time.monotonic()))
    used = (server.cpu_s() - began) / (time.monotonic() - start)
    late = [statistics.median(delays), float(np.quantile(delays, 0.95))] if delays else [None, None]
    return [str(pages), len(delays), *late, 100 * used, server.mib()]


def _settled(start: float) -> float:
    """Return when what is logged is followed: some seconds after the page was opened, as its agent sees the lease."""
    return time.time() - time.monotonic() + start + _SETTLED_S
