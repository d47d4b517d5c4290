"""Exceptions raised by the trainer's signal handlers, such as `KeyboardInterrupt`: otel-rl never swallows them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from opentelemetry import context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context


def let_pass(error: BaseException | None) -> None:
    """Raise a caught exception again if a signal handler of the trainer raised it.

    An exception that the trainer itself is handling while it calls otel-rl is not raised.
    """
    trace = None if error is None else error.__traceback__
    if error is None or trace is None:
        return
    if not _is_ours(trace):
        return
    others = {one.tb_frame.f_code for one in _each(trace) if not _is_ours(one)}
    if not others:
        return  # nearly always; the look at all signals takes 0.2 ms
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers}
    codes |= {getattr(type(handler).__call__, "__code__", None) for handler in handlers if callable(handler)}
    if others & codes:
        raise error


def _each(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_ours(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith("otel_rl.")


def detach(token: Token[Context]) -> None:
    """Restore the previous context. OpenTelemetry's `detach` would swallow exceptions of signal handlers.

    In another task or thread than at entry, such as one that closes a generator, there is nothing to restore.
    """
    try:
        token.var.reset(token)
    except (RuntimeError, ValueError) as error:  # restored already, before an interrupt; or in another task or thread
        let_pass(error)
    except AttributeError as error:  # another context runtime
        let_pass(error)
        context.detach(token)
