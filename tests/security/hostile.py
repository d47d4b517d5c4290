"""Hostile names, by what they attack."""

from __future__ import annotations

import unicodedata

DIRECTORIES = [
    ".",
    "..",
    "...",
    "../up",
    "../../../../etc/passwd",
    "/absolute",
    "//double",
    "a/../../b",
    "a//b",
    "a/./b",
    "a/",
    "a\\..\\b",
    "C:\\Windows",
    "\\\\server\\share",
    "~/.ssh/config",
    "$HOME",
    "%2e%2e%2f",
    "..%c0%af",
    "file:///etc/passwd",
    ".hidden",
    "-rf",
    "--config=x",
    " ",
    " leading",
    "trailing ",
    "trailing.",
    "CON",
    "nul.txt",
    "COM1",
    "lpt9.log",
    "aux.json",
    "run.json",
    "local",
    "*",
    "?",
    "a:b",
    'a"b<c>d|e',
]
"""Names that leave a directory, that a file system or a shell reserves, or that otherwise name a file of otel-rl."""

LONG = [
    "n" * 255,
    "n" * 256,
    "n" * 255 + "x",
    "n" * 255 + "y",
    "é" * 200,
    "奖" * 200,
    "🔥" * 200,
    "long/" * 100 + "a",
    "long/" * 100 + "b",
    "n" * 4096,
]
"""Names above the 255 bytes of a file name, in bytes or in characters, and pairs that differ only at the end."""

ALIKE = [
    "loss",
    "Loss",
    "LOSS",
    "café",
    unicodedata.normalize("NFD", "café"),
    "ﬁle",
    "file",
    "straße",
    "strasse",
    "STRASSE",
    "K",
    "\u212a",
    "a\u200bb",
    "ab",
    "a-b",
    "a b",
    "a_b",
]
"""Names that are one file on a file system that ignores case or normalizes Unicode, or that look the same."""

TERMINALS = [
    "\x1b[31mred\x1b[0m",
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x1b\\link",
    "\x9b31m",
    "\x1bP+q544e\x1b\\",
    "\x07bell",
    "back\x08\x08\x08\x08space",
    "over\rwritten",
    "\x7fdelete",
    "\x00null",
    "tab\there",
    "\x0evt\x0f",
    "\u202eright-to-left",
    "\u2066isolate\u2069",
    "\u061cmark",
    "[red]markup[/red]",
    "[/]",
    "[bold",
    ":smile:",
    "[link=http://evil.example]x[/link]",
]
"""Names that act on a terminal, change the direction of a text, or are markup of rich."""

LINES = [
    "line\nbreak",
    "carriage\r\nreturn",
    "x\n2026-01-01 00:00:00,000 ERROR otel_rl.recorder.agent: forged",
    "separator\u2028line",
    "paragraph\u2029two",
    "next\x85line",
    "vertical\x0btab",
    "form\x0cfeed",
    "file\x1cseparator",
    '{"step": 9}',
    "metrics_tag: {}",
    "%s %d %n",
    "{0.__class__}",
]
"""Names that forge a line of a log or of a file, or that a format would expand."""

CELLS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "=cmd|' /C calc'!A0",
    'quo"te',
    "com,ma",
    "semi;colon",
    "pipe|cell",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "[x](javascript:alert(1))",
    "`code`",
    "**bold**",
    "x'; DROP TABLE metrics; --",
    'le="1",x="2"} 1\nforged 2',
    "back\\slash",
    "# HELP forged",
]
"""Names that are a formula, HTML, Markdown, SQL or another sample where they are written into a cell or a label."""

NAMES = list(dict.fromkeys(DIRECTORIES + LONG + ALIKE + TERMINALS + LINES + CELLS))
SURROGATES = ["\udc80", "a\ud800b", "\ud83d\ude00"]
"""Names that UTF-8 cannot encode; otel-rl escapes them where they enter."""

_CODES = [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200B, *range(0x2028, 0x202F), 0x2066, 0x2069]
CONTROLS = frozenset(map(chr, _CODES))
"""Characters that no line of a terminal or of a log may have."""
