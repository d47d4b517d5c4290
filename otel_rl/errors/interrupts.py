"""What a trainer's own signal handlers raise: it passes through otel-rl, whatever otel-rl was about to catch."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from opentelemetry import context

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context


def let_pass(error: BaseException | None) -> None:
    """Raise an exception that otel-rl has caught, if it is the trainer's own: a signal handler raised it.

    One that the trainer is dealing with itself, where otel-rl only happens to be called, is left alone.
    """
    trace = None if error is None else error.__traceback__
    if error is None or trace is None:
        return
    caught_by = str(trace.tb_frame.f_globals.get("__name__", ""))
    if not caught_by.startswith("otel_rl."):
        return
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers}
    codes |= {getattr(type(handler).__call__, "__code__", None) for handler in handlers if callable(handler)}
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            raise error
        trace = trace.tb_next


def detach(token: Token[Context]) -> None:
    """Restore the context of before, as OpenTelemetry's `detach`, which swallows what a signal handler raises in it."""
    try:
        token.var.reset(token)
    except RuntimeError as error:  # it was restored, and an interrupt came before that was noted
        let_pass(error)
    except (AttributeError, ValueError) as error:  # another runtime of contexts; another task than entered
        let_pass(error)
        context.detach(token)
