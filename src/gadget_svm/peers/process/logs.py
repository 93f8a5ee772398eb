"""The log of a peer: one line per record, as JSON or text. Owns the format and the set-up, not what is logged.

Values go beside the text: ``log.info("state saved", extra=fields(path=path, seconds=0.1))``. Texts of other peers
may be among them, so a record is one line whatever it holds, without control characters, and bounded.
"""

import json
import logging
import math
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

MAX_TEXT = 2000  # characters of one text
MAX_ENTRIES = 100  # of one list


def fields(**values: Any) -> dict[str, Any]:
    """Return values for ``extra=``, of any name, also of those that logging reserves."""
    return {"fields": values}


def plain(value: Any) -> Any:
    """Return the value as JSON can hold it: numbers that are not finite become None, long texts and lists are cut."""
    if isinstance(value, list | tuple):
        return [plain(each) for each in value[:MAX_ENTRIES]]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else cut(str(value))


def cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def one_line(text: str) -> str:
    """Escape line breaks, control characters and those that change the direction of writing."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


class PeerFormatter(logging.Formatter):
    """As JSON: an object with time, level, peer, event, and if there are any, fields and error.

    As text: time level peer: event key=value. The traceback of an error follows, indented.
    """

    def __init__(self, peer: str, format: str) -> None:
        super().__init__()
        self._peer, self._as_json = peer, format == "json"

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        level, event = record.levelname.lower(), cut(record.getMessage())
        values = {key: plain(value) for key, value in getattr(record, "fields", {}).items()}
        error = self.formatException(record.exc_info) if record.exc_info else ""
        error = error[-10 * MAX_TEXT :]  # the end says what happened
        if self._as_json:
            parts = {"time": moment, "level": level, "peer": self._peer, "event": event}
            more = {"fields": values, "error": error}
            return json.dumps(parts | {key: value for key, value in more.items() if value}, allow_nan=False)
        told = "".join(f" {key}={json.dumps(value)}" for key, value in values.items())
        line = f"{moment} {level:<7} {self._peer}: {one_line(event)}{told}"
        return "\n    ".join([line, *map(one_line, error.splitlines())])


class _PeerHandler(logging.StreamHandler[TextIO]):
    """The handler that `setup_logging` adds and replaces; it leaves others alone."""


def setup_logging(level: str, format: str, peer: str, stream: TextIO | None = None) -> None:
    """Log to a stream, by default standard error: this package from ``level`` on, others from warning on.

    A second call replaces the set-up of the first.
    """
    chosen: int = logging.getLevelName(level.upper())
    handler = _PeerHandler(stream or sys.stderr)
    handler.setFormatter(PeerFormatter(peer, format))
    root = logging.getLogger()
    root.handlers = [*(other for other in root.handlers if not isinstance(other, _PeerHandler)), handler]
    root.setLevel(max(chosen, logging.WARNING))
    logging.getLogger("gadget_svm").setLevel(chosen)
    logging.captureWarnings(True)
