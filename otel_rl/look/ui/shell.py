"""The page itself: its frame, style and script, without a word of any run. Everybody who asks gets it."""

from __future__ import annotations

from otel_rl.look.page.document import shell
from otel_rl.look.page.markup import Markup, joined, tag
from otel_rl.look.page.verdict import buttons_of

_TITLE = "otel-rl"
_SHARE = tag("button", "share", type="button", id="share", title="A link for reading, to what is shown")
_NO_SCRIPTS = "This page needs JavaScript. Without it: otel-rl ls, otel-rl top and otel-rl report."


def page() -> bytes:
    """Return the page as a file of HTML."""
    return shell(_TITLE, _body()).encode()


def _body() -> Markup:
    return joined(
        tag(
            "header",
            tag("a", _TITLE, href="#runs", class_="home"),
            tag("p", "", id="watching", role="status"),
            tag("div", _SHARE, buttons_of(), class_="buttons"),
            class_="bar",
        ),
        tag("noscript", tag("p", _NO_SCRIPTS, class_="note")),
        tag("div", "", id="screen"),
        tag("div", "", id="hint", role="tooltip", hidden=True),
    )
