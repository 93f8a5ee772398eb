"""SIGTERM while this process has a Ray connection of ours. Imports no Ray."""

import signal
import threading
from types import FrameType
from typing import Any


class SigtermGuard:
    """Keeps `ray.init` from replacing the caller's SIGTERM handler.

    Ray's own handler ends its processes at once, before a checkpoint could be written. `restore` puts the caller's
    handler back. Where there was none, SIGTERM raises SystemExit(143) until `release`, so that the run can save a
    checkpoint and end its actors. Outside the main thread nothing is done: Ray sets no handler there either.
    """

    def __init__(self) -> None:
        self._before: Any = signal.getsignal(signal.SIGTERM)

    def restore(self) -> None:
        """Undo what Ray did."""
        self._set(_exit if self._before == signal.SIG_DFL else self._before)

    def release(self) -> None:
        """Leave the handler as it was before."""
        self._set(self._before)

    def _set(self, handler: Any) -> None:
        if handler is not None and threading.current_thread() is threading.main_thread():  # None: not Python's
            signal.signal(signal.SIGTERM, handler)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
