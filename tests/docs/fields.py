"""The meanings of the fields of a class, as its source has them: a comment behind a field, or a docstring below it."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap

_COMMENT = re.compile(r"  # (.*)$")


def meanings(kind: type) -> dict[str, str]:
    """Return a sentence for each field of a class and its bases that has a meaning."""
    found: dict[str, str] = {}
    for one in reversed([base for base in kind.__mro__ if base.__module__.startswith("otel_rl")]):
        source = textwrap.dedent(inspect.getsource(one))
        lines, (body, *_) = source.splitlines(), ast.parse(source).body
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, [*body.body[1:], None], strict=True):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[field.target.id] = " ".join(str(below.value.value).split())
            elif comment := _COMMENT.search(lines[(field.end_lineno or field.lineno) - 1]):
                found[field.target.id] = (
                    f"{comment[1][0].upper()}{comment[1][1:]}{'' if comment[1][-1] in '.!?' else '.'}"
                )
    return found
