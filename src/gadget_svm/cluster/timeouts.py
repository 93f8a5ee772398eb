"""Limits for what Ray does without any: calls that may never come back, servers that say nothing. Imports no Ray."""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

GIVEN_UP = "gadget_svm: a call to Ray that was given up"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""How a client of HTTP/2 begins, with settings that set nothing (RFC 9113, 3.4 and 6.5)."""
HEAD, KIND, SETTINGS = 9, 3, 4
"""Bytes of a frame's head, which of them says what it is, and what a server's first frame must be."""


class ClusterError(RuntimeError, ConnectionError):
    """Why a run on a cluster cannot begin or go on, and what to do: for a user to read, not for a debugger."""


class Call:
    """A call in a thread of its own, so that nobody need wait for it without end; it goes on, however long it takes."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.found: Future[Any] = Future()
        self._thread = threading.Thread(target=self._work, args=(call,), daemon=True)
        self._thread.start()

    def _work(self, call: Callable[[], Any]) -> None:
        try:
            self.found.set_result(call())
        except BaseException as error:
            self.found.set_exception(error)

    def over(self, seconds: float) -> bool:
        """Whether it is, within so many seconds."""
        wait([self.found], timeout=seconds)
        return self.found.done()

    def give_up(self) -> None:
        """Mark it, for `hanging`."""
        self._thread.name = GIVEN_UP


def hanging() -> bool:
    """Whether a call that was given up still goes on in this process."""
    return any(thread.name == GIVEN_UP for thread in threading.enumerate())


def within(seconds: float, what: str, call: Callable[[], Any]) -> Any:
    """The call's result, or its error; a TimeoutError if it takes longer."""
    calling = Call(call)
    if not calling.over(seconds):
        raise TimeoutError(f"Ray did not say within {seconds:g} s {what}")
    return calling.found.result()


def greet(host: str, port: int, seconds: float) -> None:
    """An OSError unless what listens there speaks as Ray's servers do. Ray itself would wait on and on for a word."""
    with socket.create_connection((host, port), seconds) as line:
        line.sendall(PREFACE)
        head = b""
        while len(head) < HEAD and (more := _heard(line, seconds)):
            head += more
    if len(head) < HEAD or head[KIND] != SETTINGS:
        raise ConnectionError("what answers there is not Ray")


def _heard(line: socket.socket, seconds: float) -> bytes:
    try:
        return line.recv(HEAD)
    except TimeoutError:
        raise TimeoutError(f"something takes connections there, and said nothing for {seconds:g} s") from None
