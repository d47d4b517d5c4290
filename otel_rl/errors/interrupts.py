"""Exceptions raised by the trainer's signal handlers, such as `KeyboardInterrupt`: otel-rl never swallows them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from opentelemetry import context

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context


def let_pass(error: BaseException | None) -> None:
    """Raise a caught exception again if a signal handler of the trainer raised it.

    An exception that the trainer itself is handling while it calls otel-rl is not raised.
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
