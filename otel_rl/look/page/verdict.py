"""The top of the page: the title line, and the findings, each with a link to its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from otel_rl.look.page.markup import Markup, joined, tag
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.states import goes_on
from otel_rl.recorder.facts.step_time import RECENT_STEPS

if TYPE_CHECKING:
    from otel_rl.look.insight import Evidence, Facts, Finding
    from otel_rl.recorder.archive.marks import Marks

_MARKS = {"bad": "✖", "warning": "▲", "note": "○", "good": "✓"}
"""A mark for each severity, so that color is not the only sign."""
_NO_BUTTONS = joined()
_CALLED = {"bad": "Problem", "warning": "Warning", "note": "Note", "good": "Good"}


def buttons_of() -> Markup:
    """Return the buttons of a page."""
    return joined(
        tag("button", "◐ theme", type="button", id="theme", title="Change the theme: system, light, dark (t)"),
        tag("button", "? keys", type="button", id="keys", title="Show the keys (?)"),
    )


def header_of(facts: Facts, made_unix_nano: int, marks: Marks, buttons: Markup = _NO_BUTTONS) -> Markup:
    """Return the title line with the tags and notes of people, and with buttons if the page has none elsewhere."""
    summary = facts.summary
    of_total = f" of {summary.total_steps:,}" if summary.total_steps else ""
    machines = wording.count(len(summary.hosts), "machine")
    seconds = summary.recent_step_seconds
    texts = [
        f"{summary.steps:,}{of_total} {'step' if summary.steps == 1 and not of_total else 'steps'}",
        wording.seconds(summary.duration_s) if summary.duration_s > 0 else "",
        f"{wording.count(summary.ranks, 'rank')} on {machines}" if summary.ranks else "",
        wording.count(summary.attempts, "attempt") if summary.attempts > 1 else "",
        f"{wording.seconds(seconds)} a step (last {RECENT_STEPS})" if seconds is not None else "",
        facts.cost.words,
    ]
    if goes_on(summary.state):
        texts.append(f"as of {wording.date(made_unix_nano)}")
    elif summary.last_unix_nano:
        texts.append(f"ended {wording.date(summary.last_unix_nano)}")
    state = tag("span", summary.state, class_=f"state {summary.state}", data_severity=facts.severity)
    line = joined(state, *(tag("span", fact) for fact in texts if fact))
    identity = tag("small", summary.id, title="The id of the run") if summary.id != summary.name else ""
    name = joined(
        tag("span", summary.project, class_="project"), " ", tag("span", summary.name, class_="name"), " ", identity
    )
    return tag(
        "header",
        tag("a", "Skip to the verdict", href="#verdict", class_="skip"),
        tag("div", tag("h1", name), tag("p", line, class_="facts"), *_marks_of(marks), class_="title"),
        tag("div", buttons, class_="buttons") if buttons else "",
    )


def _marks_of(marks: Marks) -> list[Markup]:
    labels = joined(*(tag("span", label, class_="sure") for label in marks.labels))
    texts = [tag("p", text, class_="note") for text in marks.notes.splitlines()]
    return [*([tag("p", labels, class_="tags")] if marks.labels else []), *texts]


def verdict_of(facts: Facts) -> Markup:
    """Return the findings in their order of precedence."""
    if not facts.findings:
        nothing = "Nothing was recorded yet." if facts.summary.state == "empty" else "Nothing stands out."
        body = tag("p", nothing, class_="nothing")
    else:
        body = tag("ul", *map(_finding, facts.findings), class_="findings")
    return section("verdict", "Verdict", body)


def section(identity: str, title: str, *content: str, note: str = "") -> Markup:
    """Return a part of the page with its title and a note."""
    heading = joined(tag("h2", title, id=f"{identity}-title"), tag("p", note, class_="note") if note else "")
    return tag(
        "section",
        tag("div", heading, class_="heading"),
        *content,
        id=identity,
        aria_labelledby=f"{identity}-title",
        tabindex="-1",
    )


def sentences_of(facts: Facts, *kinds: str) -> Markup:
    """Return the findings of some kinds as sentences above their evidence."""
    elements = [
        tag("p", _coded(finding.sentence), class_="finding-line") for finding in facts.findings if finding.kind in kinds
    ]
    return joined(*elements)


def link_of(evidence: Evidence) -> str:
    """Return the address inside the page that shows the evidence."""
    parts: dict[str, str] = {"at": evidence.panel}
    if evidence.steps is not None:
        first, last = evidence.steps
        parts |= {"step": str(first)} if first == last else {"steps": f"{first}-{last}"}
    if evidence.ranks:
        parts["rank"] = str(evidence.ranks[0])
    if evidence.role:
        parts["role"] = evidence.role
    if evidence.phases:
        parts["phase"] = evidence.phases[0]
    if evidence.names:
        parts["name"] = evidence.names[0]
    return "#" + urlencode(parts)


def _finding(finding: Finding) -> Markup:
    mark = tag("span", _MARKS[finding.severity], class_="mark", aria_hidden="true")
    called = tag("span", f"{_CALLED[finding.severity]}: ", class_="unseen")
    sure = "" if finding.sure == "certain" else tag("span", finding.sure, class_="sure", title="How sure this is")
    advice = tag("p", joined(tag("span", "→ ", aria_hidden="true"), _coded(finding.advice)), class_="advice")
    return tag(
        "li",
        mark,
        tag(
            "div",
            tag("p", called, _coded(finding.sentence), " ", sure),
            *(tag("p", _coded(sentence), class_="note") for sentence in finding.also),
            advice if finding.advice else "",
            class_="words",
        ),
        tag("a", f"{_evidence(finding.evidence)} ▸", href=link_of(finding.evidence), class_="evidence"),
        class_=f"finding {finding.severity}",
    )


def _coded(text: str) -> Markup:
    """Return a text in which what stands between backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return joined(text)
    return joined(*(tag("code", part) if number % 2 else part for number, part in enumerate(parts)))


def _evidence(evidence: Evidence) -> str:
    """Return in a few words what the evidence is about."""
    parts = []
    if evidence.names:
        parts.append(evidence.names[0])
    if evidence.ranks:
        who = evidence.role or "rank"
        ranks = wording.names([str(rank) for rank in evidence.ranks])
        parts.append(f"{who} {ranks}" if len(evidence.ranks) == 1 or evidence.role else f"ranks {ranks}")
    if evidence.steps is not None:
        first, last = evidence.steps
        parts.append(f"step {first:,}" if first == last else f"steps {first:,} to {last:,}")
    return " · ".join(parts) or {"data": "samples"}.get(evidence.panel, evidence.panel)
