"""The language in which runs are chosen: each text is a list of conditions, or an error that says what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.look.insight.selection import (
    _NUMBER,
    Compared,
    Labels,
    RunColumn,
    RunTexts,
    Selection,
    SelectionError,
    Value,
    Words,
    column_of,
    selection_of,
)

RUN = RunTexts("hung", "Math", ("good", "seed0"), ("node1", "node2"), ("baseline", "it lost a rank"))
VALUES: dict[str, Value] = {"lr": 3e-6, "kl:best": 0.02, "model": "Qwen", "fp8": True, "gap": float("nan")}


def chosen(text: str) -> bool:
    """Return whether the run is chosen."""
    return selection_of(text).admits(RUN, lambda column: VALUES.get(str(column)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "BASE",
        '"lost a rank"',
        "state:hung",
        "state:finished,hung",
        "project:math",
        "project:m*",
        'project:"MATH"',
        'project:"m*","other one"',
        '-project:"two words"',
        "state:HUNG",
        "state:hun*,fin*",
        "tag:good tag:seed*",
        "host:node2",
        "lr>1e-6",
        "lr>=3e-6",
        "lr<1",
        "lr=3e-06",
        "lr==0.000003",
        "lr!=1",
        "kl:best<5%",
        "model=qwen",
        "model!=llama",
        'model="Qwen"',
        "fp8=true",
        "-state:finished",
        "-lr>1",
        "-nothing>1",
        '-"two words"',
        "base state:hung lr>1e-6",
    ],
)
def test_a_run_is_chosen(text: str) -> None:
    """It meets all conditions."""
    assert chosen(text)


@pytest.mark.parametrize(
    "text",
    [
        "other",
        "lost rank".replace(" ", "  x"),
        "state:live",
        "project:mat",
        "tag:goo",
        "host:node3",
        "lr>3e-6",
        "lr<=1e-6",
        "lr=1",
        "lr!=3e-6",
        "model=llama",
        "model>3",
        "fp8>0",
        "gap>0",
        "gap<0",
        "gap=0",
        "gap!=0",
        'project:"two words"',
        "state:fin*",
        "nothing>1",
        "nothing<1",
        "nothing!=1",
        "-state:hung",
        "base state:live",
    ],
)
def test_a_run_is_not_chosen(text: str) -> None:
    """It fails one condition; a value that it does not have, or that is not a number, meets no comparison."""
    assert not chosen(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("status:hung", "unknown status: in 'status:hung', .* known are: host, project"),
        ("state:hunk", "unknown state 'hunk'"),
        ("state:x*", "unknown state 'x\\*'"),
        ('note:"two words"', "unknown note"),
        ('project:""', "needs a project"),
        ("state:", "needs a state behind the colon"),
        ("lr>fast", "needs a number behind >"),
        ("lr>", "needs a number behind >"),
        ("lr=>1", "is not a comparison"),
        (">1", "is not a comparison"),
        ('"open', "a quotation mark is missing"),
        ("x" * 4001, "at most 4,000 characters"),
        ("x " * 65, "at most 64 conditions"),
    ],
)
def test_an_error(text: str, error: str) -> None:
    """It names the term and what is expected."""
    with pytest.raises(SelectionError, match=error):
        selection_of(text)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("lr", RunColumn("lr")),
        ("kl:best", RunColumn("kl", "best")),
        ("loss:mean100", RunColumn("loss", "mean", 100)),
        ("a:b:max", RunColumn("a:b", "max")),
        ("loss:mean0", RunColumn("loss:mean0")),
        ("eval:mean", RunColumn("eval:mean")),
    ],
)
def test_columns(text: str, column: RunColumn) -> None:
    """A known word behind the last colon says which value is meant; else it is part of the name."""
    assert column_of(text) == column
    assert str(column) == text


def test_units() -> None:
    """They multiply."""
    found = selection_of("seen<2h step_time<500ms kl<3% age>1min")

    assert [condition.number for condition in found.conditions if isinstance(condition, Compared)] == [
        7200,
        0.5,
        pytest.approx(0.03),
        60,
    ]


def test_a_number_with_many_digits() -> None:
    """Reading it takes time that grows with its length alone."""
    assert _NUMBER.fullmatch("1" * 1_000_000 + "x") is None


def test_values_that_take_time() -> None:
    """They are asked for only where all else holds."""
    selection_of("lr>1 state:live").admits(RUN, lambda column: pytest.fail(str(column)))


_WORD = st.text("abcXYZ019_./*@ ,:<=", min_size=1, max_size=8)
_CONDITION = st.one_of(
    st.builds(Words, st.text("ab :<>=,\u00e9", max_size=6), st.booleans()),
    st.builds(
        Labels, st.sampled_from(["project", "tag", "host"]), st.lists(_WORD, min_size=1).map(tuple), st.booleans()
    ),
    st.builds(
        lambda name, sign, number, refused: Compared(column_of(name), sign, repr(number), number, refused),
        st.from_regex(r"[a-z][a-z/.]{0,5}(:best|:mean[1-9])?", fullmatch=True),
        st.sampled_from([">", ">=", "<", "<=", "=", "!="]),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
    ),
)


@given(st.lists(_CONDITION, max_size=5))
def test_a_selection_as_text(conditions: list[Words | Labels | Compared]) -> None:
    """It is read back as it was."""
    selection = Selection(tuple(conditions))

    assert selection_of(str(selection)) == selection


@given(st.one_of(st.text(max_size=60), st.text('ab:<>=!"- 1e5,*', max_size=60)))
def test_any_text(text: str) -> None:
    """It is a selection or an error of the language; what was read decides about any run."""
    try:
        selection = selection_of(text)
    except SelectionError:
        return
    assert selection.admits(RUN, lambda _: 1.0) in (True, False)
    assert selection_of(str(selection)).conditions == selection.conditions


@given(st.lists(_CONDITION, max_size=4))
def test_all_conditions_hold(conditions: list[Words | Labels | Compared]) -> None:
    """A run is chosen if each condition alone chooses it, and its opposite does not."""
    each = [Selection((condition,)).admits(RUN, lambda _: 1.0) for condition in conditions]

    assert Selection(tuple(conditions)).admits(RUN, lambda _: 1.0) == all(each)
    for condition, admits in zip(conditions, each, strict=True):
        opposite = condition._replace(refused=not condition.refused)
        assert Selection((opposite,)).admits(RUN, lambda _: 1.0) != admits
