"""The parts of the page in their order: what is readable without scripts, and the places where scripts draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.page import about
from otel_rl.look.page.autopsy import autopsy_of
from otel_rl.look.page.markup import Markup, joined, tag
from otel_rl.look.page.printed import printed_of
from otel_rl.look.page.reasons import reasons_of
from otel_rl.look.page.verdict import buttons_of, header_of, section, sentences_of, verdict_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight import Facts
    from otel_rl.look.page.moment import RunMoment

_PARTS = (
    ("curves", "Curves"),
    ("phases", "Time per step"),
    ("why", "Slow steps"),
    ("timeline", "Timeline"),
    ("waiting", "Waiting"),
    ("memory", "Memory"),
    ("engines", "Engines"),
    ("goodput", "Goodput"),
    ("machines", "GPUs and host"),
    ("events", "Events"),
    ("printed", "Printed lines"),
    ("data", "Samples"),
    ("parameters", "Parameters"),
    ("environment", "Environment"),
    ("recording", "Recording"),
)
"""The parts below the verdict, and their titles."""
_NO_SCRIPTS = "The charts need JavaScript. The findings and the tables do not. The page makes no request."


class Piece(NamedTuple):
    """A part of the page: its id, its title, and its section."""

    id: str
    title: str
    html: Markup


def body_of(now: RunMoment) -> Markup:
    """Return the body of the report."""
    pieces = pieces_of(now)
    links = joined(*(tag("a", piece.title, href=f"#at={piece.id}") for piece in pieces))
    where = tag("div", tag("p", "", id="where", role="status"), tag("div", id="brush"), class_="follow", id="follow")
    parts = (piece.html for piece in pieces)
    return joined(
        header_of(now.facts, now.made, now.run.place.marks, buttons_of()),
        tag("noscript", tag("p", _NO_SCRIPTS, class_="note")),
        tag("nav", links, aria_label="Parts of the page"),
        tag("main", verdict_of(now.facts), where, *parts, class_="incomplete" if is_incomplete(now) else None),
        tag("footer", tag("p", "Made by otel-rl from the archive of the run. This file makes no request.")),
        tag("div", "", id="hint", role="tooltip", hidden=True),
    )


def is_incomplete(now: RunMoment) -> bool:
    """Return whether lines of the archive are missing."""
    return bool(now.run.damaged or now.run.holes)


def pieces_of(now: RunMoment) -> list[Piece]:
    """Return the parts below the verdict."""
    run, facts = now.run, now.facts
    optional = {"autopsy": autopsy_of(now.path), "printed": printed_of(run, now.origin)}
    shown = [part for part in (("autopsy", "Autopsy"), *_PARTS) if optional.get(part[0], "") is not None]
    contents = {
        **{name: content or joined() for name, content in optional.items()},
        "phases": joined(sentences_of(facts, "time", "change"), _place("phases"), _shares(facts)),
        "why": reasons_of(run),
        "waiting": joined(sentences_of(facts, "straggler"), _place("waiting")),
        "memory": joined(sentences_of(facts, "memory"), _place("memory")),
        "engines": joined(sentences_of(facts, "engines"), _place("engines")),
        "events": now.events,
        "goodput": joined(sentences_of(facts, "goodput"), _place("goodput")),
        "data": joined(sentences_of(facts, "data"), _place("data")),
        "parameters": about.values_of(run.parameters, "Parameters"),
        "environment": joined(sentences_of(facts, "environment"), about.values_of(run.environment, "Environment")),
        "recording": joined(
            about.recording_of(run, now.path), tag("h3", "Processes"), about.processes_of(run, now.origin)
        ),
    }
    return [Piece(name, title, section(name, title, contents.get(name, _place(name)))) for name, title in shown]


def _place(identity: str) -> Markup:
    return tag("div", id=f"draw-{identity}", class_="draw")


def _shares(facts: Facts) -> Markup:
    """Return where the time of all steps went, as a table."""
    if not facts.shares:
        return joined()
    lines = [
        (share.name or "not in any phase", share.category, wording.seconds(share.seconds), wording.percent(share.share))
        for share in facts.shares
    ]
    table = about.table_of(("phase", "category", "time", "share"), lines, "Shares of phases", numbers=(2, 3))
    return tag("details", tag("summary", "As a table: shares over all steps, time averaged over ranks"), table)
