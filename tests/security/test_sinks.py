"""The functions that make a text from outside harmless, each for every hostile name."""

from __future__ import annotations

import html.parser
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_rl.recorder.errors import SettingsError, sinks
from otel_rl.recorder.errors.texts import shown
from tests.security.hostile import CONTROLS, NAMES, SURROGATES

ALL = [*NAMES, *SURROGATES, ""]
_PROGRAMS = ("mkfs.exfat", "mount.exfat-fuse", "losetup")


@pytest.fixture
def case_insensitive(tmp_path: Path) -> Iterator[Path]:
    """A directory on a real file system that ignores case: exFAT, for which root needs no kernel module."""
    is_possible = os.geteuid() == 0 and Path("/dev/fuse").exists() and all(map(shutil.which, _PROGRAMS))
    if not is_possible and not os.environ.get("REQUIRE_REAL_PARTS"):
        pytest.skip("needs root, /dev/fuse, and the packages exfatprogs and exfat-fuse")
    image, place = tmp_path / "image", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    place.mkdir()

    def run(*command: str | Path) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run("mkfs.exfat", image)
    device = run("losetup", "--find", "--show", image)
    try:
        run("mount.exfat-fuse", device, place)
        try:
            yield place
        finally:
            run("umount", place)
    finally:
        run("losetup", "--detach", device)


@pytest.mark.parametrize("name", ALL)
def test_a_file_name_stays_in_its_directory(name: str, tmp_path: Path) -> None:
    """It is one visible component of at most 255 bytes, printable, and no name of a device; a file can have it."""
    found = sinks.file_name(name)
    (tmp_path / found).write_text("")

    assert [path.name for path in tmp_path.iterdir()] == [found]
    assert found.isprintable()
    assert not found.startswith((".", "-", "~"))
    assert not found.endswith((".", " "))
    assert found.split(".")[0].lower() not in {"con", "nul", "aux", "com1", "lpt9"}


def test_file_names_stay_different() -> None:
    """No two names have one file."""
    assert len({sinks.file_name(name) for name in ALL}) == len(ALL)


@pytest.mark.parametrize("name", ["grpo-gsm8k", "Qwen2.5-7B", "run_7", "项目", "é", "a.b", "v1-20260101"])
def test_usual_names_are_kept(name: str) -> None:
    """A directory has the name that the user gave."""
    assert sinks.file_name(name) == name


def test_names_that_look_like_another_ones_hash_get_their_own() -> None:
    """A name that is spelled as the file of another name is another file."""
    assert sinks.file_name(sinks.file_name("a/b")) != sinks.file_name("a/b")


@pytest.mark.parametrize("longest", [20, 64, 250])
def test_shortened_names_stay_different(longest: int) -> None:
    """They are not longer than asked, and equal only if the names are."""
    found = [sinks.shortened(name, longest) for name in ALL]

    assert max(map(len, found)) <= longest
    assert len(set(found)) == len(ALL)


@pytest.mark.parametrize("name", ALL)
def test_a_line_is_one_line(name: str) -> None:
    """Nothing in it acts on a terminal; what is harmless is kept."""
    found = sinks.one_line(name)

    assert not CONTROLS & set(found)
    assert len(f"x{found}x".splitlines()) == 1
    found.encode()
    if name.isprintable():
        assert found == name


@pytest.mark.parametrize("name", ALL)
def test_lines_are_only_broken_by_line_feeds(name: str) -> None:
    """Line feeds and tabs stay; nothing else acts on a terminal."""
    assert not CONTROLS - {"\n", "\t"} & set(sinks.lines(name))


@pytest.mark.parametrize("name", ALL)
def test_a_markdown_cell_is_literal(name: str) -> None:
    """An HTML parser finds the text, with `<br>` for line ends, and no other element."""
    found: list[str] = []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            found.append(f"<{tag}>")

        def handle_data(self, data: str) -> None:
            found.append(data)

    parser = Parser()
    parser.feed(cell := sinks.markdown_cell(name))
    parser.close()

    assert not set(cell) & set("|*_`[]\n")
    expected = name.replace("\r\n", "\n").replace("\n", "<br>")
    assert "".join(found) == "".join(chr(0x2400 + ord(c)) if c < " " and c != "\t" else c for c in expected)


@pytest.mark.parametrize("name", ALL)
def test_errors_are_one_line(name: str) -> None:
    """A value in an error message, and the message of a `SettingsError`, cannot act on a terminal."""

    class Odd:
        def __repr__(self) -> str:
            return name

    for text in (shown(name), shown(Odd()), str(SettingsError(f"invalid name={name}"))):
        assert not CONTROLS & set(text)
    assert len(shown(Odd())) <= 120


def test_long_names_in_errors_stay_different() -> None:
    """Two names that differ only at their ends are two texts, which are counted apart."""
    assert shown("n" * 300 + "x") != shown("n" * 300 + "y")


@pytest.mark.parametrize("name", NAMES)
def test_a_log_record_is_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Any handler of the trainer gets a harmless message, wherever the name is in it."""
    logger = sinks.log_of("otel_rl.test")
    logger.warning("metric %s: %r", name, 1)
    logger.warning(f"metric {name}".replace("%", "%%"))

    assert [len(record.getMessage().splitlines()) for record in caplog.records] == [1, 1]
    assert not CONTROLS & set("".join(record.getMessage() for record in caplog.records))


def test_no_message_begins_a_line_of_the_agents_log() -> None:
    """Messages of other packages are one line too, and tracebacks are indented."""
    forged = "x\n2026-01-01 00:00:00,000 ERROR otel_rl.recorder.agent: forged\u2028\x1b[31m"
    try:
        raise ValueError(forged)
    except ValueError as error:
        record = logging.LogRecord(
            "urllib3", logging.ERROR, "", 0, forged, None, (ValueError, error, error.__traceback__)
        )
    text = sinks.OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s").format(record)

    assert [line[:2] for line in text.splitlines()[1:]] == ["  "] * (len(text.splitlines()) - 1)
    assert not (CONTROLS - {"\n"}) & set(text)


def test_names_that_are_one_file_get_two(case_insensitive: Path) -> None:
    """Where the file system ignores case and normalizes, each of two such names has its own path, found again."""
    for first, second in (("Loss", "loss"), ("É", "é")):
        sinks.at(case_insensitive, first).write_text(first)
        sinks.at(case_insensitive, second).write_text(second)

        for name in (first, second):
            assert sinks.at(case_insensitive, name).read_text() == name
        assert sinks.at(case_insensitive, first).name == first


def test_names_keep_their_paths_where_case_matters(tmp_path: Path) -> None:
    """On other file systems each path is the name itself."""
    for name in ("Loss", "loss", "é"):
        sinks.at(tmp_path, name).write_text("")

    assert {path.name for path in tmp_path.iterdir()} == {"Loss", "loss", "é"}
