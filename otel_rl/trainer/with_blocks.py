"""The `with` statement that entered a context manager, and whether it has been left.

An exception at the first instruction of `__exit__`, such as a Ctrl-C, hides the end of a block from its context
manager. The stack still shows it: the current instruction is no longer inside the block.
"""

from __future__ import annotations

import inspect
import sys
from opcode import opmap
from threading import get_ident
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_ENTERS = opmap.get("SETUP_WITH", -1)  # Python 3.10
_LEAVES = opmap["WITH_EXCEPT_START"]
_INSTRUCTION = 2  # bytes
_LONGEST_ENTRY = 12  # bytes of the instruction that enters, with its caches


class Block(msgspec.Struct, frozen=True, gc=False):
    """The place where a context manager was entered; it holds no frame, which would keep variables alive."""

    thread: int
    frame: int  # the identity of the function's frame
    code: Any  # a `CodeType`
    entered_at: int  # offset of the instruction that entered


def entered_in(frame: FrameType) -> Block:
    """Return the block that `frame` enters now."""
    return Block(get_ident(), id(frame), frame.f_code, frame.f_lasti)


def is_with(block: Block) -> bool:
    """Return whether a `with` statement entered it, rather than a call of `__enter__`."""
    return _handler_of_with(block.code, block.entered_at) is not None


def is_left(block: Block) -> bool:
    """Return whether the block has certainly been left; false without a `with` statement."""
    code = block.code
    handler = _handler_of_with(code, block.entered_at)
    if handler is None:
        return False
    frame = sys._current_frames().get(block.thread)
    while frame is not None:
        if id(frame) == block.frame and frame.f_code is code:
            return not _is_inside(code, handler, block.entered_at, frame.f_lasti)
        frame = frame.f_back
    return not code.co_flags & _SUSPENDABLE  # a waiting coroutine is not on any stack


def _is_inside(code: CodeType, handler: int, entered_at: int, now: int) -> bool:
    if now == entered_at:  # the same statement is reached again
        return False
    if not hasattr(code, "co_exceptiontable"):
        return entered_at < now < handler
    around = _handler_at(code, now)
    for _ in range(len(code.co_code)):  # from block to surrounding block
        if around is None or around == handler:
            break
        around = _handler_at(code, around)
    return around is not None


def _handler_of_with(code: CodeType, entered_at: int) -> int | None:
    """Return the offset of the statement's exception handler; `None` if it is not a `with` statement."""
    if not hasattr(code, "co_exceptiontable"):
        return _handler_in_3_10(code.co_code, entered_at)
    for offset in range(entered_at + _INSTRUCTION, entered_at + _LONGEST_ENTRY, _INSTRUCTION):
        handler = _handler_at(code, offset)
        if handler is not None and code.co_code[handler + _INSTRUCTION] == _LEAVES:
            return handler if handler != _handler_at(code, entered_at) else None
    return None


def _handler_in_3_10(instructions: bytes, entered_at: int) -> int | None:
    if not 0 <= entered_at < len(instructions) or instructions[entered_at] != _ENTERS:
        return None
    argument, more = instructions[entered_at + 1], entered_at - _INSTRUCTION
    if more >= 0 and instructions[more] == opmap["EXTENDED_ARG"]:  # two of them would be a block of 65,536 instructions
        argument |= instructions[more + 1] << 8
    return entered_at + _INSTRUCTION * (1 + argument)


def _handler_at(code: CodeType, offset: int) -> int | None:
    """Return the offset of the handler of exceptions raised at `offset`."""
    return next((target for start, end, target in _ranges(code) if start <= offset < end), None)


def _ranges(code: CodeType) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and handler from the exception table, as CPython's `exception_handling_notes` describe it."""
    numbers = _numbers(getattr(code, "co_exceptiontable", b""))
    for start, length, target, _ in zip(numbers, numbers, numbers, numbers, strict=False):
        yield start * _INSTRUCTION, (start + length) * _INSTRUCTION, target * _INSTRUCTION


def _numbers(table: bytes) -> Iterator[int]:
    number = 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:
            yield number
            number = 0
