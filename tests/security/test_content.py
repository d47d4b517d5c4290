"""Without `init(content=True)`, no text and no token leaves the process: all files and all requests are searched."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.archive.tables import TABLES
from otel_rl.serve.bridge.http import HttpServer
from tests.security.test_secrets import files_of
from tests.serve.bridge.test_http import Taken

pytestmark = pytest.mark.slow
TOKENS = [1_234_567, 2_345_678]
LOGPROBS = [-0.123456789, -1.23456789]
TEXTS = ("the-prompt", "the-answer", "the-argument", "the-tool", "the-found", "the-system", "the-piece")


def record(place: Path, *, content: bool) -> Path:
    """Record a run of one step that gives texts to every call that takes them; return its directory."""
    exporters = ["jsonl", "sidecar", "tensorboard"]
    run = otel_rl.init(dir=place / "runs", exporters=exporters, content=content, quiet=True, hardware=False)
    lists = {"tokens": TOKENS, "logprobs": LOGPROBS, "mask": [True, False], "pieces": [TEXTS[6], ""]}
    with run.step(0):
        with run.trajectory(policy_version=1) as one:
            one.message("user", TEXTS[0])
            one.message("assistant", TEXTS[1], tool_calls=[{"arguments": TEXTS[2]}], **lists)  # type: ignore[arg-type]
            one.message("tool", TEXTS[4], name=TEXTS[3])
            one.generated(2)
            one.rewarded(0.5, components={"format": 1.0})
        run.trained([one.ticket()], advantages=[0.25], losses=[0.125], logprobs=[LOGPROBS])
        asked = [{"role": "system", "content": TEXTS[5]}, {"role": "user", "content": TEXTS[0]}]
        given = {
            "tokens": [TOKENS],
            "pieces": [[TEXTS[6], ""]],
            "logprobs": [LOGPROBS],
            "trainer_logprobs": [LOGPROBS],
            "masks": [[True, False]],
        }
        run.completions([asked], [[{"role": "assistant", "content": TEXTS[1]}]], rewards=[0.5], **given)  # type: ignore[arg-type]
        run.table("answers", {"prompt": [TEXTS[0]], "reward": [0.5]})
        run.log({"loss": 0.5})
    assert run.finish(60), run.dir
    return run.dir


def found_in(places: dict[str, bytes]) -> set[str]:
    """Return which of the texts and tokens are anywhere, however they are written."""
    wanted = {text: [text.encode()] for text in TEXTS}
    for token in TOKENS:
        wanted[str(token)] = [str(token).encode(), struct.pack("<i", token), struct.pack(">i", token)]
    for one in LOGPROBS:
        wanted[str(one)] = [str(one).encode(), struct.pack("<d", one), struct.pack(">d", one)]
    return {
        name for name, spellings in wanted.items() for raw in places.values() if any(one in raw for one in spellings)
    }


def everything(run: Path, taken: Taken) -> dict[str, bytes]:
    """Return every file, every request, and every table of the archive, whose files are compressed."""
    reader = otel_rl.open_run(run, attempts="all")
    tables = {table.name: repr(reader.sql(f"FROM {table.name}").to_arrow().to_pylist()).encode() for table in TABLES}
    requests = {f"request {n}": one.SerializeToString() for n, one in enumerate(taken.requests)}
    return files_of(run.parents[1]) | tables | requests


@pytest.mark.parametrize("content", [False, True])
def test_texts_leave_only_if_they_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, content: bool
) -> None:
    """With `content=True` all of them are found, so that the search is one that finds."""
    taken = Taken()
    server = HttpServer(("127.0.0.1", 0), taken)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.port}")
    run = record(tmp_path, content=content)
    server.close()
    found = found_in(everything(run, taken))
    reader = otel_rl.open_run(run)

    assert taken.requests
    assert found == ({*TEXTS, *map(str, TOKENS), *map(str, LOGPROBS)} if content else set())
    assert len(reader.messages()) == (6 if content else 0)
    assert list(reader.trajectories()["advantage"])[:1] == [0.25]
    assert list(reader.trajectories()["components"])[:1] == ['{"format":1.0}']
