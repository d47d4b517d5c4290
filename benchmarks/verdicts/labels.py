"""A scenario: a small program, the public thread that it is taken from, and the label that says what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from benchmarks.verdicts.pieces.recording import Recording

Kind: TypeAlias = Literal["hang", "death", "slow", "ill", "lie", "control"]
Form: TypeAlias = Literal["calls", "plain"]


class Label(msgspec.Struct, frozen=True):
    """The text that an answer needs, as regular expressions without case.

    All expressions of `right` have to be in one statement, such as a finding with its advice. So do those of `place`.

    Attributes:
        right: Names the cause.
        place: Names only where the program is, or what one sees of the cause.
        wrong: Any of them accuses something that is not the cause.
        plain: `right` for the form without calls; empty if it is the same.
    """

    right: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()

    def cause(self, form: Form) -> tuple[str, ...]:
        """Return what names the cause in this form of the program."""
        return self.plain if form == "plain" and self.plain else self.right


class Scenario(msgspec.Struct, frozen=True):
    """A program and its label.

    Attributes:
        name: Its name, which is unique.
        kind: What is wrong; nothing is wrong with a control.
        program: Runs it, recorded.
        label: What an answer has to say; a control has only what would be wrong.
        thread: Repository and number of the public thread; controls can be without one.
        is_asked_live: If true, the question is asked while it goes on, after the program has marked a moment.
    """

    name: str
    kind: Kind
    program: Callable[[Recording], None]
    label: Label = Label()
    thread: str = ""
    is_asked_live: bool = False


TRACKER = r"resource_tracker|<string>:1 \(<module>\)"
CIRCLE = r"wait for each other"
NETWORK = r"\bnetwork\b"
"""Accusations that several labels call wrong."""


def hang(name: str, thread: str, program: Callable[[Recording], None], label: Label) -> Scenario:
    """Return a scenario that is asked about while it hangs."""
    common = tuple(wrong for wrong in (TRACKER, CIRCLE, NETWORK) if wrong not in label.right)
    label = msgspec.structs.replace(label, wrong=(*common, *label.wrong))
    return Scenario(name, "hang", program, label, thread, is_asked_live=True)
