"""The user's function: it sees each text and name after the rules, and what it returns is recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import otel_rl
from otel_rl.recorder import secrets as redaction
from otel_rl.recorder.secrets import REDACTED, redact, redacted_name, without_secret
from otel_rl.testing import capture

HERE = "tests.recorder.secrets.test_last_word"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Leave the built-in rules."""
    yield
    redaction.begin()


def without_people(text: str, name: str) -> str:
    """Replace a name in texts, and everything under `author`."""
    return "somebody" if name.endswith("author") else text.replace("Ada", "A.")


def failing(text: str, name: str) -> str:
    """Fail for some texts, and forget others."""
    if "bad" in text:
        raise ValueError(text)
    return None if "lost" in text else text  # type: ignore[return-value] # as a user's function can do


def of_one(text: str) -> str:
    """Take too little."""
    return text


def test_texts_names_and_values() -> None:
    """The function gets each text, short and known ones too, with the name of its value, after the rules."""
    redaction.begin(function=without_people)

    assert redact("Ada") == redact("Ada") == ("A.", 1)
    assert redact("password=hunter2x of Ada") == (f"password={REDACTED} of A.", 2)
    assert redacted_name("loss/Ada").startswith("loss/A.-")
    assert without_secret("author", "Grace") == "somebody"
    assert without_secret("authors", ["Ada", "Grace"]) == ["A.", "Grace"]


def test_failures_replace_the_text() -> None:
    """A text for which the function raises, or returns another type, is replaced and counted; nothing is raised."""
    counted: list[tuple[str, str]] = []
    redaction.begin(function=failing)

    assert redact("bad text") == (REDACTED, 1)
    redaction.count_with(lambda reason, message: counted.append((reason, message)))
    assert [redact(text)[0] for text in ("lost", "good")] == [REDACTED, "good"]
    assert [reason for reason, _ in counted] == ["redact", "redact"]
    assert "raised ValueError" in counted[0][1]
    assert "returned NoneType instead of str" in counted[1][1]
    assert "bad text" not in counted[0][1]


def test_in_a_run() -> None:
    """In a run, the function sees parameters, tables, events, attributes and names; failures are in `refused`."""
    with capture() as captured:
        run = otel_rl.init(content=True, config={"author": "Grace", "note": "by Ada"}, redact={"function": failing})
        with run.step(0), run.phase("bad phase"):
            run.log({"bad": 1.0, "loss": 2.0})
            run.table("samples", {"text": ["good", "bad"]})
        run.finish()

    assert captured.refused["redact"] == 3
    assert captured.params == {"author": "Grace", "note": "by Ada"}
    assert [table.rows for table in captured.tables] == [[("good",), (REDACTED,)]]
    assert "bad" not in repr((captured.values, captured.phases))


def test_names_that_an_earlier_run_knew() -> None:
    """The rules of a run hold for names of metrics that were clean by those of the run before."""
    values = []
    for redact_by in ({}, {"function": failing}, {"patterns": ["bad"]}, {}):
        with capture() as captured:
            run = otel_rl.init(redact=redact_by)
            run.log({"bad/number": 1.0}, step=0)
            run.finish()
        values.append("bad/number" in [one.name for one in captured.values])

    assert values == [True, False, False, True]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (f"{HERE}:of_one", "must take a text and a name"),
        (f"{HERE}:missing", "cannot be imported"),
        ("clean", "must be 'module:qualname'"),
        (lambda text, name: text, "define it at the top of a module"),
    ],
)
def test_wrong_functions(given: object, message: str) -> None:
    """A function that cannot be imported or called is refused at set-up."""
    with pytest.raises(otel_rl.SettingsError, match=message):
        otel_rl.init(redact={"function": given})


def test_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable names the function too, and other processes of the run get it."""
    monkeypatch.setenv("OTEL_RL_REDACT_FUNCTION", f"{HERE}:without_people")
    with capture() as captured:
        run = otel_rl.init(config={"note": "by Ada"})
        variables = run.environment()
        run.finish()

    assert captured.params == {"note": "by A."}
    assert variables["OTEL_RL_REDACT_FUNCTION"] == f"{HERE}:without_people"
