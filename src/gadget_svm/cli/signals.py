"""Handles SIGINT and SIGTERM outside a training. During a training, `progress` handles them.

Imports only modules that Python loads early.

An exception that a handler raises inside an import may be lost: the module that is imported may catch it, or turn it
into an ImportError. So the handlers here raise no exception there.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

WORDS: dict[int, str] = {signal.SIGINT: "aborted", signal.SIGTERM: "terminated"}
RETRY_INTERVAL_S = 0.02
IMPORTER = "<frozen importlib._bootstrap>"
Handler = Callable[[int, FrameType | None], Any]


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM. Commands handle it like Ctrl-C."""


def exit_at_once(number: int, _frame: FrameType | None = None) -> None:
    """End the process with one line, as long as nothing has been started that needs a clean-up."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or written to right now
            stream.flush()
    with suppress(OSError):
        os.write(2, f"{WORDS[number]}\n".encode())
    os._exit(128 + number)


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise `Terminated` on SIGTERM and KeyboardInterrupt on SIGINT, as soon as no import is under way."""
    if not postponed(number, frame):
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def postponed(number: int, frame: FrameType | None) -> bool:
    """Return whether the main thread is importing a module; the signal is then sent again after RETRY_INTERVAL_S."""
    while frame is not None and frame.f_code.co_filename != IMPORTER:
        frame = frame.f_back
    if frame is None:
        return False
    again = threading.Timer(RETRY_INTERVAL_S, signal.pthread_kill, (threading.main_thread().ident, number))
    again.daemon = True
    again.start()
    return True


@contextmanager
def handled(handler: Handler, numbers: Iterable[int] = tuple(WORDS)) -> Iterator[None]:
    """Let ``handler`` handle the signals, and restore the former handlers at the end.

    A signal that the process was started to ignore (as a shell starts a background job with SIGINT ignored) stays
    ignored.
    """
    before: list[tuple[int, Any]] = []
    try:
        if threading.current_thread() is threading.main_thread():  # elsewhere none can be set
            for number in numbers:
                if (found := signal.getsignal(number)) is not signal.SIG_IGN:
                    before.append((number, found))
                    signal.signal(number, handler)
        yield
    finally:
        for number, found in before:
            signal.signal(number, found)
