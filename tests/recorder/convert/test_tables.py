"""Tables: what trainers hold becomes columns, what leaves the process is plain, bounded and without secrets."""

from __future__ import annotations

import base64
import datetime
import enum
import hashlib
import math
from decimal import Decimal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.convert.tables import Cleaned, Limits, clean, cut, redact, to_columns
from tests.real_parts import part

torch = part("torch")

AB = {"a": [1, 2], "b": ["x", "y"]}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.text(st.characters(categories=("Cs",))),
    st.binary(),
    st.complex_numbers(),
    st.decimals(),
    st.datetimes(),
    st.dictionaries(st.text(), st.integers()),
    st.lists(st.integers()),
)


class Colour(enum.Enum):
    """A choice."""

    RED = 1


class Level(enum.IntEnum):
    """An integer with a name."""

    HIGH = 3


class Silent:
    """An object without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Array:
    """An array on an accelerator, which must not be read."""

    ndim = 1

    def __init__(self, device: str) -> None:
        self.device = device

    def tolist(self) -> list[float]:
        """Fail: reading it waits."""
        raise AssertionError("it was read")


def cleaned(column: list[object], *, with_text: bool = True, **limits: int) -> Cleaned:
    return clean({"a": column}, with_text=with_text, limits=Limits(**limits))


def cell(value: object) -> object:
    return cleaned([value]).rows[0][0]


@pytest.mark.parametrize(
    "data",
    [
        AB,
        {"a": (1, 2), "b": ("x", "y")},
        {"a": np.array([1, 2]), "b": np.array(["x", "y"])},
        {"a": torch.tensor([1, 2]), "b": AB["b"]},
        {"a": torch.nn.Parameter(torch.tensor([1.0, 2.0])), "b": AB["b"]},
        {"a": range(1, 3), "b": {"k": "x", "l": "y"}.values()},
        [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
        ({"a": 1, "b": "x"}, {"b": "y", "a": 2}),
    ],
)
def test_columns(data: object) -> None:
    """Columns and rows become the same lists by column, whatever holds them."""
    assert to_columns(data) == AB


def test_columns_of_times_and_masked_values() -> None:
    """Times keep their unit, as texts, and a masked cell is empty."""
    times = to_columns({"a": np.array([5], "m8[ns]"), "b": np.ma.array([1.0], mask=True)})

    assert clean(times, with_text=True, limits=Limits()).rows == [("5 nanoseconds", None)]


def test_data_frame() -> None:
    """A data frame, or its columns, become lists by column."""
    frame = pytest.importorskip("pandas").DataFrame(AB)

    assert to_columns(frame) == AB
    assert to_columns({"a": frame["a"], "b": frame["b"]}) == AB


@pytest.mark.parametrize(("names", "text"), [(None, "invalid column name 0"), (["a", "a"], "two columns of one")])
def test_no_data_frame(names: list[str] | None, text: str) -> None:
    """A data frame whose columns have no names, or one twice, is refused."""
    frame = pytest.importorskip("pandas").DataFrame([[1, 2]], columns=names)

    with pytest.raises(ValueError, match=text):
        to_columns(frame)


def test_rows_with_gaps() -> None:
    """Columns are in the order in which rows first have them, and a missing cell is `None`."""
    found = to_columns([{"b": 1}, {"a": 2}, {"c": 3, "b": 4}])

    assert list(found.items()) == [("b", [1, None, 4]), ("a", [None, 2, None]), ("c", [None, None, 3])]


def test_no_rows() -> None:
    """A table may have columns and no rows."""
    assert to_columns({"a": [], "b": np.array([])}) == {"a": [], "b": []}


def test_object_columns() -> None:
    """A column may hold cells of several kinds, scalars of NumPy and torch among them."""
    column = [1, "x", None, np.float32(0.5), torch.tensor(2), Silent]

    assert to_columns({"a": np.array(column, dtype=object)})["a"] == column


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, "at least one column"),
        ([], "at least one column"),
        ([{}], "at least one column"),
        ({"prompt": ["x", "y"], "reward": [1]}, "prompt has 2, reward has 1"),
        ({"a": [[1], [2]]}, "nested"),
        ({"a": ["x", {"role": "user"}]}, "nested"),
        ({"a": [1, (2, 3)]}, "nested"),
        ({"a": [np.zeros(2), np.zeros(3)]}, "nested"),
        ({"a": [torch.zeros(2)]}, "nested"),
        ({"a": np.zeros((2, 2))}, "2 dimensions"),
        ({"a": torch.zeros(2, 1)}, "2 dimensions"),
        ({"a": np.float64(1)}, "0 dimensions"),
        ({"a": 1.0}, "a float where a sequence"),
        ({"a": "text"}, "a str where a sequence"),
        ({"a": {1, 2}}, "a set where a sequence"),
        ({"a": None}, "a NoneType where a sequence"),
        ({1: [1]}, "invalid column name 1"),
        ({"": [1]}, "invalid column name ''"),
        ({("a", "b"): [1]}, "must be a non-empty str"),
        ("text", "not str"),
        (None, "not NoneType"),
        ([1, 2], "a row is a mapping from column to cell, not int"),
        ([["x", 1]], "a row is a mapping from column to cell, not list"),
    ],
)
def test_no_table(data: object, text: str) -> None:
    """Invalid tables are refused with the reason."""
    with pytest.raises(ValueError, match=text):
        to_columns(data)


@pytest.mark.parametrize(
    "column", [Array("cuda:0"), torch.zeros(2, device="meta"), [torch.zeros((), device="meta")], [1.0, Array("tpu:0")]]
)
def test_on_a_device(column: object) -> None:
    """An array on a device is refused unread: reading it would make the trainer wait."""
    with pytest.raises(ValueError, match=r"nested|would make the trainer wait"):
        to_columns({"a": column})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (3, 3),
        (0.5, 0.5),
        ("x", "x"),
        (None, None),
        (math.inf, math.inf),
        (np.bool_(True), True),
        (np.int64(-3), -3),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.array(4), 4),
        (np.str_("x"), "x"),
        (torch.tensor(2.5, requires_grad=True), 2.5),
        (torch.tensor([7]), 7),
        (torch.tensor(True), True),
        (torch.tensor(0.5, dtype=torch.bfloat16), 0.5),
        (torch.zeros(3, device="meta"), "Tensor on meta"),
        (Array("cuda:0"), "Array on cuda:0"),
        (Level.HIGH, 3),
        (2**70, 2.0**70),
        (2**63, 2**63),
        (b"bytes \xff", "bytes \\xff"),
        (Colour.RED, "Colour.RED"),
        (Decimal("1.5"), "1.5"),
        (1j, "1j"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (np.datetime64("2026-01-02"), "2026-01-02"),
        (np.datetime64("2026-01-02T03:04:05", "ns"), "2026-01-02T03:04:05.000000000"),
        (np.timedelta64(5, "ns"), "5 nanoseconds"),
        (np.ma.masked, None),
        (Silent(), "Silent"),
        ([1], "[1]"),
    ],
)
def test_plain(value: object, expected: object) -> None:
    """A cell is a number if it holds one, and else the object's text."""
    found = cell(value)

    assert (type(found), found) == (type(expected), expected)


def test_nan() -> None:
    """NaN stays NaN."""
    assert all(math.isnan(cell(value)) for value in (math.nan, np.float32("nan"), torch.tensor(math.nan)))


@given(st.lists(ODD), st.booleans(), st.integers(0, 5), st.integers(0, 5), st.integers(0, 200))
def test_always_a_table(column: list[object], with_text: bool, text: int, rows: int, table_bytes: int) -> None:
    """Whatever the cells, the table is one that MessagePack takes, inside its limits, and no row is unaccounted for."""
    found = cleaned(column, with_text=with_text, text=text, rows=rows, table_bytes=table_bytes)

    assert len(found.rows) <= rows
    assert len(found.rows) + found.cut_rows == len(column)
    assert sum(len(msgspec.msgpack.encode(row)) for row in found.rows) <= table_bytes


def test_without_text() -> None:
    """Where text may not leave, numbers and truths stay and texts of any object are gone."""
    found = cleaned([1, 0.5, True, "prompt", Colour.RED, None], with_text=False)

    assert found == Cleaned(("a",), [(1,), (0.5,), (True,), (None,), (None,), (None,)])


def test_cut_text() -> None:
    """A text is cut at the limit, says how much is missing, and is counted."""
    found = cleaned(["x" * 30, "y" * 10], text=10)

    assert found.rows == [("x" * 10 + "… [20 characters more]",), ("y" * 10,)]
    assert found.cut_cells == 1


def test_huge_text() -> None:
    """Of a huge text there is the beginning, and the length of the rest."""
    found = cleaned(["x" * 3_000_000])

    assert found.rows == [("x" * 16_384 + "… [2983616 characters more]",)]


def test_too_many_rows() -> None:
    """Rows beyond the limit are left out from the end, and counted."""
    found = clean({"a": list(range(9)), "b": list("abcdefghi")}, with_text=True, limits=Limits(rows=2))

    assert (found.rows, found.cut_rows) == ([(0, "a"), (1, "b")], 7)


def test_too_many_bytes() -> None:
    """Rows beyond the bytes of a table are left out from the end, and counted; what was cut in them is not."""
    found = cleaned(["é" * 60] * 9, text=50, table_bytes=300)

    assert (len(found.rows), found.cut_rows, found.cut_cells) == (2, 7, 2)


def test_surrogates() -> None:
    """Invalid Unicode is escaped, in cells and in names."""
    found = clean({"a\ud800": ["\udcff", "é"]}, with_text=True, limits=Limits())

    assert found == Cleaned(("a\\ud800",), [("\\udcff",), ("é",)])


@pytest.mark.parametrize("before", [0, 5, 10, 14])
def test_secret_at_the_cut(before: int) -> None:
    """A secret that the limit would cut in two is not shown in part."""
    secret = "hf_" + ("aB1" * 12)[:34]
    found = cleaned(["." * before + secret + "." * 9_000], text=15)

    assert "hf_" not in found.rows[0][0]
    assert found.redacted == 1


def test_redacted_shrinks() -> None:
    """A text that is short once its secrets are gone still hides the end, where a secret may be cut in two."""
    secret = "eyJ" + "aB1_" * 1000 + ".eyJ" + "aB1_" * 30 + "." + "aB1_" * 30
    found = cleaned([secret + " hf_" + "aB1" * 12 + "." * 9_000], text=100)

    assert "hf_" not in found.rows[0][0]
    assert len(found.rows[0][0]) < 150


def test_cut() -> None:
    """Cutting leaves a text of the limit's length alone."""
    assert [cut("abc", 3), cut("abc", 2)] == ["abc", "ab… [1 characters more]"]


PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}-----END RSA PRIVATE KEY-----"
LINES = "MIIEowIBAAKCAQEAx5d8f0Q2hVZ3m1k9yqTt7cW4bNnL6rPzEoGsHuJvXiYaKdRl\n" * 3
ENCRYPTED = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123456789ABCDEF\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://user:hf_" + "aBcD" * 9 + "@huggingface.co", "https://user:[redacted]@huggingface.co"),
        ("id AKIAIOSFODNN7EXAMPLE.", "id [redacted]."),
        ("?key=AIza" + "aB3_x" * 7 + "&q=1", "?key=[redacted]&q=1"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P", "[redacted]"),
        (PEM.format(LINES + "abc=\n"), "-----BEGIN RSA PRIVATE KEY-----[redacted]\n-----END RSA PRIVATE KEY-----"),
        (PEM.format(ENCRYPTED + LINES), "-----BEGIN RSA PRIVATE KEY-----[redacted]\n-----END RSA PRIVATE KEY-----"),
        ("-----BEGIN PRIVATE KEY-----\\n" + LINES.replace("\n", "\\n"), "-----BEGIN PRIVATE KEY-----[redacted]\\n"),
        ("Authorization: Bearer 0123456789abcdef.XYZ=", "Authorization: Bearer [redacted]"),
        ("password=hunter2", "password=[redacted]"),
        ("DB_PASSWORD=s3cr3t! next", "DB_PASSWORD=[redacted] next"),
        ("?user=a&passwd=hunter22&x=1", "?user=a&passwd=[redacted]&x=1"),
        ("password = 'correct-horse'", "password = '[redacted]'"),
        ('{"api_key": "abc123", "n": 1}', '{"api_key": "[redacted]", "n": 1}'),
        ('{\\"clientSecret\\": \\"abc-123\\"}', '{\\"clientSecret\\": \\"[redacted]\\"}'),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "AWS_SECRET_ACCESS_KEY=[redacted]"),
        ("Password: abc12345", "Password: [redacted]"),
        ("access-token: a1b2c3d4", "access-token: [redacted]"),
        ("wandb login " + "0a" * 20, "wandb login [redacted]"),
        ("WANDB_API_KEY=" + "0a" * 20, "WANDB_API_KEY=[redacted]"),
        ("wandb API key is: " + "0a" * 20, "wandb API key is: [redacted]"),
    ],
)
def test_secrets(text: str, expected: str) -> None:
    """A secret with a known format is redacted, and nothing else."""
    assert redact(text) == (expected, 1)
    assert redact(expected) == (expected, 0)


@pytest.mark.parametrize(
    "text",
    [
        "The password must have 8 characters; a secret token is the key to the API, said the bearer of bad news.",
        "Password: required. API key: see the settings. Secret: 42 people know it.",
        "Bearer authentication is described in RFC 6750, and bearer tokens in authentication-schemes too.",
        "This risk-averse, task-based-and-desk-bound-approach uses sk-learn-like-estimators-everywhere.",
        "def login(user, password: str, api_key=None): return connect(user=user, password=password)",
        "password = get_password(user1)\ntoken = tokens[0]; api_key=os.environ['KEY_1'] if key else None",
        "api_key=config2.api_key, access_token = self.token2.value",
        "if password == 'hunter2' or password != old_password1: pass",
        "password='{pw1}' password=\"%s1\" password=<password1> password=${PASSWORD1} api_key='YOUR_API_KEY'",
        "sorted(items, key=lambda i1: i1.x1, reverse=True); eos_token=151645, max_tokens=123456",
        "pip install git+https://github.com/wandb/wandb@" + hashlib.sha1(b"x").hexdigest(),
        "commit " + hashlib.sha1(b"x").hexdigest() + " sha256:" + hashlib.sha256(b"x").hexdigest(),
        "hf_model_config_for_long_names_of_things hf_hub_download xoxo-love-and-kisses-for-all",
        "-----BEGIN PRIVATE KEY----- starts a key and -----BEGIN CERTIFICATE----- " + LINES,
        "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 40).decode(),
        "8f14e45f-ceea-4672-a1f4-2d7c9b0e3a55",
    ],
)
def test_no_secrets(text: str) -> None:
    """Prose, code, hashes and images are not touched."""
    assert redact(text) == (text, 0)


@given(st.binary(min_size=100, max_size=5_000))
def test_images(image: bytes) -> None:
    """No image in base64 holds a secret."""
    text = base64.b64encode(image).decode()

    assert redact(text) == (text, 0)


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    """Any text can be redacted, and once redacted stays as it is."""
    found, _ = redact(text)

    assert redact(found) == (found, 0)


@pytest.mark.parametrize(
    "piece",
    [
        "password='1",
        "pwd:" + " " * 8,
        "-----BEGIN PRIVATE KEY-----\n" + "A" * 64,
        "-----BEGIN PRIVATE KEY-----" + "\nAbc: d" * 50,
        "-----BEGIN PRIVATE KEY-----" + "\n" * 100,
    ],
)
def test_linear(piece: str) -> None:
    """A megabyte of what is nearly a secret is searched in linear time: the test ends."""
    text = (piece * 1_000_000)[:1_000_000]
    found, _ = redact(text)

    assert isinstance(found, str)
