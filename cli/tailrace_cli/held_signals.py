"""Signals wait while something is started that must be known to whoever ends it.

A handler that raises (Ctrl-C does by default) may do so between the start of a process and the moment when its number is
noted; nobody would end that process then. Neighbours: `embedded.server`, the demo.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final

__all__ = ["held_signals"]

_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP")  # the last is not on Windows

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def held_signals() -> Iterator[None]:
    """Keep SIGINT, SIGTERM and SIGHUP until the end of the block, and deliver them then.

    Only those that have a handler in Python, and only on the main thread: elsewhere no handler runs. Not for a loop's own
    handlers (`add_signal_handler`), which raise nothing and would be called twice.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: set[int] = set()
    with ExitStack() as stack:  # each handler is given back, also when the one before raises
        for number in (getattr(signal, name) for name in _NAMES if hasattr(signal, name)):
            handler = signal.getsignal(number)
            if callable(handler):
                stack.callback(_give_back, number, handler, came)
                signal.signal(number, lambda number, _: came.add(number))
        yield


def _give_back(number: int, handler: Handler, came: set[int]) -> None:
    signal.signal(number, handler)
    if number in came:
        signal.raise_signal(number)
