"""The facts that each screen shows of a run, read from JSON, text and HTML."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import otel_rl
from otel_rl.cli import main
from otel_rl.look.insight import facts_of
from otel_rl.look.page.report import page_of
from otel_rl.recorder.facts import wording
from tests.look.test_page import data_in, unpacked

CELLS = 400
"""Cells of a line of text: nothing is left out."""
_KEYS = ("state", "reason", "last_step", "total_steps", "recent_step_seconds", "step_seconds_before")
_SHARES = ("shares", "recent_shares")
_MOST = 3
"""Sentences that are compared: the first ones."""
_STATES = "live|hung|finished|failed|cancelled|crashed|lost|empty"
_TRAINED = re.compile(r"(.*? %) of the time trained\.(.*)")
_LOST = re.compile(r"((?:less than )?[\d.]+ %) ([\w ]+)")
_CHANGED = re.compile(r"Steps take .* since step ([\d,]+),")
_TAG = re.compile(r"<[^>]+>")


class Said(NamedTuple):
    """One fact, as one screen says it; `text` is what a reader sees."""

    screen: str
    fact: str
    text: str


def said_of(directory: Path, at: int, patch: pytest.MonkeyPatch) -> list[Said]:
    """Return what all screens say of the only run below a directory, at a moment."""
    run = directory / "run"
    with patch.context() as moment:
        moment.setattr(time, "time_ns", lambda: at)
        moment.setattr(time, "time", lambda: at / 1e9)
        moment.setenv("COLUMNS", str(CELLS))
        moment.setenv("OTEL_RL_DIR", str(directory))
        return [*_of_json(run, directory), *_of_texts(run), *_of_page(run)]


def _of_json(run: Path, directory: Path) -> Iterator[Said]:
    from otel_rl.look.mcp.tools import Tools

    facts = facts_of(otel_rl.open_run(run))
    tools = Tools(directory)
    yield Said("facts_of", "unknown sentence", "")
    answers: dict[str, Any] = {
        "facts_of": _plain(facts),
        "ls --json": _asked("ls", "--json", str(run))["runs"][0],
        "top --json": _asked("top", "--json", str(run))["runs"][0],
        "mcp runs": _plain(tools.runs())["runs"][0],
        "mcp status": _plain(tools.status()),
        "why --json": _asked("why", "--json", str(run)),
        "mcp why": _tried(lambda: _plain(tools.why())),
    }
    for screen, answer in answers.items():
        yield from _keys(screen, answer)
        sentences = [finding["sentence"] for finding in answer.get("findings", ())] or answer.get("verdict") or []
        if "why" in screen:  # it quotes the findings that answer
            known = {finding.sentence for finding in facts.findings}
            yield from (Said(screen, "unknown sentence", sentence) for sentence in sentences if sentence not in known)
        else:
            yield from _verdict(screen, sentences)


def _keys(screen: str, answer: Any, path: str = "") -> Iterator[Said]:
    """Yield what an answer has under the keys that mean one thing each, wherever they are in it."""
    if isinstance(answer, list):
        for part in answer:
            yield from _keys(screen, part, path)
    if not isinstance(answer, dict):
        return
    for key, value in answer.items():
        if key in ("evidence", "processes", "exporters", "hangs"):
            continue
        if key in _SHARES and value:
            yield from _shares(screen, key, value)
        elif key in _KEYS or (key == "steps" and isinstance(value, int)):
            yield Said(screen, key, _text(key, value))
        elif key == "goodput" and isinstance(value, dict):
            for name, share in value.items():
                if isinstance(share, float):
                    yield Said(screen, f"goodput {name}", wording.percent(share))
        yield from _keys(screen, value, f"{path}.{key}")


def _text(key: str, value: Any) -> str:
    if key == "last_step":  # a run without steps has none
        return "none" if value in (None, -1) else str(value)
    if key.endswith(("_seconds", "_before")):
        return "none" if value is None else wording.seconds(value)
    return "none" if value is None else str(value)


def _shares(screen: str, key: str, shares: list[Any]) -> Iterator[Said]:
    """Yield the share of each phase; those of `now.json` are names, categories and seconds."""
    plain = [(share["name"], share["seconds"]) if isinstance(share, dict) else (share[0], share[2]) for share in shares]
    total = sum(seconds for _, seconds in plain)
    for name, seconds in plain:
        yield Said(screen, f"{key} {name or '(none)'}", wording.percent(seconds / total))


def _verdict(screen: str, sentences: Sequence[str]) -> Iterator[Said]:
    """Yield the first sentences, and the numbers of those about goodput and a change, wherever they are."""
    for number, sentence in enumerate(sentences[:_MOST], 1):
        yield Said(screen, f"sentence {number}", sentence)
    for sentence in sentences:
        if match := _TRAINED.match(sentence):
            yield Said(screen, "trained", match[1])
            for share, loss in _LOST.findall(match[2]):
                yield Said(screen, f"lost {loss}", share)
        if match := _CHANGED.match(sentence):
            yield Said(screen, "changed at step", match[1])


def _of_texts(run: Path) -> Iterator[Said]:
    yield from _of_list(_printed("ls", "--text", str(run)))
    yield from _of_top(_printed("top", "--once", "--text", str(run)))


def _of_list(text: str) -> Iterator[Said]:
    row = text.splitlines()[1]
    state = re.search(rf"[●○✗] ({_STATES})\b(.*)", row)
    assert state is not None
    yield Said("ls --text", "state", state[1])
    steps = re.match(r"[ !,nan]* ([\d,]+)(?: of [\d,]+)?  ", state[2])
    yield Said("ls --text", "steps", steps[1].replace(",", "") if steps else "0")


def _of_top(text: str) -> Iterator[Said]:
    lines = text.splitlines()
    if state := re.search(rf"[●○✗] ({_STATES})\b", lines[0]):
        yield Said("top --text", "state", state[1])
    if recent := re.search(r"  (\S+ \S+(?: \S+ \S+)?) a step \(last", lines[0]):
        yield Said("top --text", "recent_step_seconds", _minutes(recent[1]))
    signs = [line for line in lines[1:12] if re.match(r" [●○✖▲✓] ", line)]
    for number, line in enumerate(signs[:_MOST], 1):
        yield Said("top --text", f"sentence {number}", line[3:].partition("  → ")[0].strip())


def _minutes(text: str) -> str:
    """Return a short duration in the words of others."""
    return re.sub(r"\bm\b", "min", text)


def _of_page(run: Path) -> Iterator[Said]:
    page = page_of(run)
    header = re.search(r'<p class="facts">(.*?)</p>', page, re.DOTALL)
    assert header is not None
    facts = [html.unescape(_TAG.sub("", part)) for part in re.findall(r"<span[^>]*>(.*?)</span>", header[1])]
    if state := re.search(r'class="state (\w+)"', header[1]):
        yield Said("report", "state", state[1])
    for fact in facts:
        if match := re.match(r"([\d,]+)(?: of [\d,]+)? steps?$", fact):
            yield Said("report", "steps", match[1].replace(",", ""))
        if match := re.match(r"(.*) a step", fact):
            yield Said("report", "recent_step_seconds", match[1])
    data = data_in(page)
    yield Said("report data", "state", str(data["run"]["state"]))
    found = re.findall(r'<li class="finding.*?<div class="words"><p>(.*?)</p>', page, re.DOTALL)
    plain = (re.sub(r'<span class="(?:unseen|sure)".*?</span>', "", sentence) for sentence in found)
    yield from _verdict("report", [html.unescape(_TAG.sub("", sentence)).strip() for sentence in plain])
    yield from _of_phases(data["phases"], data["steps"])


def _of_phases(phases: Mapping[str, Any], steps: Mapping[str, Any]) -> Iterator[Said]:
    """Yield the shares that the stacked phases of the page add up to."""
    if not phases["phases"]:
        return
    numbers = unpacked(steps["steps"])
    held = np.unique((numbers - numbers[0]) // phases["every"], return_counts=True)[1]
    totals = {phase["name"]: float((unpacked(phase["seconds"]) * held).sum()) for phase in phases["phases"]}
    whole = sum(totals.values())
    for name, seconds in totals.items():
        yield Said("report data", f"shares {name or '(none)'}", wording.percent(seconds / whole))


def _asked(*command: str) -> Any:
    result = CliRunner().invoke(main, list(command))
    if result.exit_code:
        return {"error": result.output.strip()}
    return json.loads(result.output)


def _tried(ask: Any) -> Any:
    try:
        return ask()
    except ValueError as error:
        return {"error": str(error)}


def _printed(*command: str) -> str:
    result = CliRunner().invoke(main, list(command), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def _plain(answer: msgspec.Struct) -> Any:
    return json.loads(msgspec.json.encode(answer))
