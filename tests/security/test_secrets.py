"""Secrets: nothing that enters a run as one leaves the trainer's memory, in any file, request, page or log."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import random
import sqlite3
import string
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import psutil
import pytest

from otel_rl.recorder.secrets import REDACTED, redact
from otel_rl.serve.bridge.http import HttpServer
from otel_rl_exporters.leveldb_log import LogReader
from tests.collector import free_port, wait_for
from tests.recorder.secrets.samples import samples
from tests.security.secret_trainer import MARKER
from tests.serve.bridge.test_http import Taken

ROOT = Path(__file__).parents[2]
NAMES = (
    *("api_key", "OPENAI_API_KEY", "hf_token", "db_password", "client_secret", "aws_secret_access_key", "authToken"),
    *("private_key", "credentials", "Authorization", "session_token", "connection_string", "cookie", "passphrase"),
)
TRACKERS = ("tensorboard", "wandb", "mlflow", "swanlab", "trackio")


@pytest.fixture
def taken() -> Taken:
    """Keep every OTLP request."""
    return Taken()


@pytest.fixture
def receiver(taken: Taken) -> Iterator[HttpServer]:
    """Accept every OTLP request."""
    server = HttpServer(("127.0.0.1", 0), taken)
    yield server
    server.close()


def simple(dice: random.Random) -> str:
    """Return a secret without a known format."""
    return "q" + "".join(dice.choices(string.ascii_letters + string.digits, k=14)) + "7Z"


def spellings(secret: str) -> set[bytes]:
    """Return the bytes by which a secret is found: itself, escaped, for a URL, and in base64 at any offset."""
    raw = secret.encode()
    inside = {base64.b64encode(bytes(shift) + raw)[4 * shift // 3 + 2 * bool(shift) : -4] for shift in range(3)}
    return {
        raw,
        quote(secret, safe="").encode(),
        quote(secret).encode(),
        json.dumps(secret)[1:-1].encode(),
        raw.hex().encode(),
        *inside,
    }


def leaks(places: dict[str, bytes], secrets: list[str]) -> list[tuple[str, str]]:
    """Return the places with a secret."""
    looked_for = {spelling: secret for secret in secrets for spelling in spellings(secret) if len(spelling) >= 8}
    return [
        (place, s) for place, content in places.items() for spelling, s in looked_for.items() if spelling in content
    ]


def files_of(*folders: Path) -> dict[str, bytes]:
    """Return the content and the name of every file."""
    found = [path for folder in folders for path in folder.rglob("*")]
    contents = {str(path): path.read_bytes() for path in found if path.is_file() and not path.is_symlink()}
    return contents | {"names of files": "\n".join(map(str, found)).encode()}


def logs_of(*folders: Path) -> dict[str, bytes]:
    """Return the records of each log of W&B and SwanLab: in the file, a record can be split by the head of a block."""
    found = {}
    for path in (path for folder in folders for path in folder.rglob("*") if path.suffix in (".wandb", ".swanlab")):
        reader = LogReader(path)
        found[f"records of {path}"] = b"\n".join(reader.read())
        reader.close()
    return found


def databases_of(*folders: Path) -> dict[str, bytes]:
    """Return the rows of each SQLite database: in the file, a row can be split over pages."""
    found = {}
    for path in (path for folder in folders for path in folder.rglob("*.db")):
        with closing(sqlite3.connect(path)) as database:
            found[f"rows of {path}"] = "\n".join(database.iterdump()).encode()
    return found


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    """A secret is found raw, in base64 at any offset, percent-encoded, and over two blocks or pages of a file.

    In the file of W&B, the head of a block is in the middle of it; in that of SQLite, the number of the next page.
    """
    secret = "".join(simple(random.Random(n)) for n in range(1000))
    before, after = b"x" * ((1 << 15) - 7 - 7 - 8) + secret[:8].encode(), secret[8:].encode()
    parts = (struct.pack("<IHB", 0, len(part), kind) + part for kind, part in ((1, before), (4, after)))
    (tmp_path / "run.wandb").write_bytes(b":W&B\x00\x00\x00" + b"".join(parts))
    with closing(sqlite3.connect(tmp_path / "x.db")) as database, database:
        database.execute("CREATE TABLE t (v)")
        database.execute("INSERT INTO t VALUES (?)", [secret])
    assert leaks(files_of(tmp_path), [secret]) == []
    for search in (logs_of, databases_of):
        assert len({place for place, _ in leaks(search(tmp_path), [secret])}) == 1

    short = "aB3/x9+" + secret[:17]
    encoded = [base64.b64encode(b"x" * k + short.encode()).decode() for k in range(4)]
    for n, content in enumerate([short, *encoded, quote(short, safe="")]):
        (tmp_path / str(n)).write_text(f"... {content} ...")
    assert len({place for place, _ in leaks(files_of(tmp_path), [short])}) == 6


@pytest.mark.slow
def test_nothing_leaks(tmp_path: Path, receiver: HttpServer, taken: Taken) -> None:
    """Secrets of all kinds enter through every entrance; no file, request, page, log or output has one."""
    dice = random.Random(os.urandom(8))
    found = [one for one in samples(dice.randrange(1 << 30)) if one.secret not in redact(one.text)[0]]  # not like words
    named = {name: simple(dice) for name in NAMES}
    argv = [
        "train.py",
        *(part for name in ("--api-key", "--hf_token", "--wandb.password") for part in (name, simple(dice))),
    ]
    argv += [f"--secret-key={simple(dice)}"]
    options = {
        "api_key": simple(dice),
        "headers": {"Authorization": f"Bearer {simple(dice)}", "x-team": simple(dice)},
        "uri": f"https://me:{simple(dice)}@tracker.example/api",
        "notes": f"notes {found[12].text}",
    }
    environment = {
        "ACME_API_KEY": simple(dice),
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={simple(dice)}",
        "OTEL_RESOURCE_ATTRIBUTES": f"team.api_key={simple(dice)},note={quote(found[13].text)},plain={MARKER}",
    }
    secrets = [one.secret for one in found] + list(named.values())
    secrets += [part.partition("=")[2] or part for part in argv if not part.startswith("--") or "=" in part][1:]
    secrets += [options["api_key"], options["headers"]["Authorization"][7:], options["headers"]["x-team"]]  # type: ignore[index]
    secrets += [options["uri"].split(":")[2].split("@")[0]]  # type: ignore[union-attr]
    secrets += [environment["ACME_API_KEY"], environment["OTEL_EXPORTER_OTLP_HEADERS"].partition("=")[2]]
    secrets += [environment["OTEL_RESOURCE_ATTRIBUTES"].split("=")[1].split(",")[0]]
    texts = [*(one.text for one in found), f"the variable is {environment['ACME_API_KEY']}"]
    given = {
        "texts": texts,
        "named": named,
        "argv": argv,
        "options": options,
        "exporters": ["jsonl", *(_tracker(name, tmp_path) for name in TRACKERS if importlib.util.find_spec(name))],
    }
    port = free_port()
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.port}",
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(port),
        "OTEL_RL_HARDWARE_INTERVAL": "1",
        "OTEL_RL_IDLE_TIMEOUT": "240",
        "TMPDIR": str(temporary),
        "HOME": str(tmp_path / "home"),
        "WANDB_MODE": "offline",
        "SWANLAB_MODE": "offline",
        "PYTHONPATH": str(ROOT),
    }
    trainer = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/security/secret_trainer.py"), str(tmp_path / "runs")],
        env={**os.environ, **environment, **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
    )
    output, _ = trainer.communicate(json.dumps(given).encode(), timeout=240)
    run = next((tmp_path / "runs").glob("*/*/run.json")).parent
    _wait_for_trackers(run)
    page = _page(port)
    _end(run)
    places = files_of(tmp_path) | logs_of(tmp_path) | databases_of(tmp_path)
    places |= {"output": output, "metrics endpoint": page}
    places |= {f"OTLP request {n}": body for n, body in enumerate(one.SerializeToString() for one in taken.requests)}

    assert len(secrets) >= 60
    assert len({one.kind for one in found}) >= 25
    assert leaks(places, secrets) == []
    _assert_all_ran(run, places, taken)


def _tracker(name: str, place: Path) -> Any:
    return {
        "mlflow": {"mlflow": {"tracking_uri": f"sqlite:///{place}/mlflow.db"}},
        "wandb": {"wandb": {"mode": "offline"}},
    }.get(name, name)


def _page(port: int) -> bytes:
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            content: bytes = answer.read()
            return content
    except OSError:
        return b""


def _wait_for_trackers(run: Path) -> None:
    """Wait until every exporter but the broken one has everything."""
    path = next(run.glob("local/*/agent.json"))

    def is_delivered() -> bool:
        status = json.loads(path.read_bytes())
        delivered = [at for name, at in status["delivered"].items() if not name.endswith("Broken")]
        return (run / "run.end.json").exists() and len({*map(tuple, delivered)}) == 1

    wait_for(is_delivered, "the trackers do not have everything", timeout=200)


def _end(run: Path) -> None:
    """End the agent, which cannot deliver to the broken exporter, and its supervisor."""
    agent = psutil.Process(json.loads(next(run.glob("local/*/agent.json")).read_bytes())["pid"])
    ending = [*agent.parents()[:1], agent]
    for process in ending:
        process.terminate()
    assert psutil.wait_procs(ending, 60)[1] == [], "the agent does not end"


def _assert_all_ran(run: Path, places: dict[str, bytes], taken: Taken) -> None:
    """Every entrance was open: the neighbors of the secrets are there, with the mark of a redaction."""
    rows = (run / "rows.jsonl").read_text()
    assert REDACTED in rows
    journals = b"".join(content for place, content in places.items() if "/journals/" in place)
    for neighbor in (
        MARKER,
        "invalid ",
        "cause ",
        "event ",
        "attribute ",
        "metric ",
        "table ",
        "reason ",
        "scope ",
        "queue ",
    ):
        assert neighbor.encode() in journals, neighbor
    assert "ConnectionError" in (run / "agent.log").read_text()
    for tracker in ("tensorboard", "wandb", "swanlab", "mlflow.db", "trackio"):
        assert any(f"/{tracker}" in place and REDACTED.encode() in content for place, content in places.items()), (
            tracker
        )
    otlp = b"".join(one.SerializeToString() for one in taken.requests)
    assert MARKER.encode() in otlp
    assert REDACTED.encode() in otlp
