"""Puts screenshots of runs next to each other, as small files for the docs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path

_GAP = 12
_COLORS = 64
"""Colors of a file, among which no hue is lost: text stays sharp, and it has a quarter of the size."""


class Sheet(NamedTuple):
    """Screenshots in columns."""

    columns: int
    width: int  # pixels of a screenshot
    names: tuple[str, ...]


SHEETS = {
    "screens_terminal.png": Sheet(
        2, 560, tuple(f"{kind}.top.80x24" for kind in ("hung", "killed", "slow", "resumed", "diverged", "hacked"))
    ),
    "screens_wide.png": Sheet(1, 1000, ("diverged.top.160x50",)),
    "screens_page.png": Sheet(2, 620, ("hung.report.1280.light", "diverged.report.1280.dark")),
    "screens_phone.png": Sheet(
        4,
        310,
        tuple(
            f"{kind}.report.390.{theme}"
            for kind, theme in (("killed", "light"), ("slow", "light"), ("hacked", "dark"), ("finished", "dark"))
        ),
    ),
}
"""The files, and the screenshots that each one shows."""


def draw(folder: Path, images: Path) -> None:
    """Write all sheets, from a folder with screenshots."""
    for file, sheet in SHEETS.items():
        _drawn(folder, sheet).quantize(_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            images / file, optimize=True
        )


def _drawn(folder: Path, sheet: Sheet) -> Image.Image:
    shown = []
    for name in sheet.names:
        with Image.open(folder / f"{name}.png") as picture:
            height = round(picture.height * sheet.width / picture.width)
            shown.append(picture.convert("RGB").resize((sheet.width, height), Image.Resampling.LANCZOS))
    height, rows = max(picture.height for picture in shown), -(-len(shown) // sheet.columns)
    size = sheet.columns * (sheet.width + _GAP) - _GAP, rows * (height + _GAP) - _GAP
    drawn = Image.new("RGB", size, "white")
    for number, picture in enumerate(shown):
        row, column = divmod(number, sheet.columns)
        drawn.paste(picture, (column * (sheet.width + _GAP), row * (height + _GAP)))
    return drawn
