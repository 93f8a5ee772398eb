"""Downloading one file so that what stays on disk is whole and is the file it was the first time: owns
retries, sizes, checksums and the atomic rename; refuses anything but http and https, and draws nothing."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import secrets
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gadget_svm.data.tables import DataFileError
from gadget_svm.data.uris import WEB

Home = tuple[str, str | None]  # an address, and the SHA-256 published for the file there
Progress = Callable[[int, int | None], None]

SUMS = "SHA256SUMS"
_BLOCK = 1 << 18
_FIRST_PAUSE = 0.5  # seconds, doubled after every failure


class DownloadError(OSError):
    """A download that did not succeed; the message says why."""


class _Transfer:
    """One download in progress; remembers the entity tag so that a broken transfer may be resumed."""

    def __init__(self, url: str, part: Path, progress: Progress | None, timeout: float) -> None:
        self.url, self.part, self.progress, self.timeout = url, part, progress, timeout
        self.tag: str | None = None

    def attempt(self) -> None:
        done = self.part.stat().st_size if self.tag and self.part.exists() else 0
        with web_opener().open(self._request(done), timeout=self.timeout) as response:
            if response.status == 206 and not _continues(response, done):
                self.tag = None
                raise DownloadError("the server resumed at the wrong place")
            start = done if response.status == 206 else 0
            self.tag = _strong_tag(response)
            self._save(response, start)

    def _request(self, done: int) -> urllib.request.Request:
        headers = {"User-Agent": "gadget-svm", "Accept-Encoding": "identity"}
        if done and self.tag:
            headers |= {"Range": f"bytes={done}-", "If-Range": self.tag}
        return urllib.request.Request(self.url, headers=headers)

    def _save(self, response: http.client.HTTPResponse, start: int) -> None:
        total = start + response.length if response.length is not None else None
        done = start
        with self.part.open("ab" if start else "wb") as out:
            while block := response.read(_BLOCK):
                out.write(block)
                done += len(block)
                if self.progress:
                    self.progress(done, total)
            out.flush()
            os.fsync(out.fileno())
        if total is not None and done != total:
            raise DownloadError(f"the transfer broke off after {done} of {total} bytes")


def fetch(
    url: str,
    target: str | os.PathLike[str],
    *,
    sha256: str | None = None,
    progress: Progress | None = None,
    retries: int = 3,
    timeout: float = 30.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Download ``url`` to ``target`` and check it; return at once if a good copy is already there.

    The SHA-256 is compared with ``sha256`` if given, else with the one recorded at the first fetch in the
    file SHA256SUMS beside the target. ``progress`` is called with (bytes done, bytes in total or None).
    """
    if urlsplit(url).scheme not in WEB:
        raise ValueError(f"only http and https addresses are fetched, not {url!r}")
    path = Path(target)
    expected = sha256 or recorded_sum(path)
    if expected and path.exists() and file_sum(path) == expected:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _unique_part(path)
    try:
        _with_retries(_Transfer(url, part, progress, timeout), retries, sleep)
        found = file_sum(part)
        if expected and found != expected:
            raise DataFileError(_mismatch(url, path, expected, found))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _record(path, found)
    return path


def download_from_mirrors(
    homes: Sequence[Home], target: str | os.PathLike[str], progress: Progress | None = None
) -> Path:
    """Fetch from the first home that delivers; the error lists what each of them said."""
    failures: list[str] = []
    damaged: DataFileError | None = None
    for url, sha256 in homes:
        try:
            return fetch(url, target, sha256=sha256, progress=progress)
        except DataFileError as error:
            damaged = error
        except DownloadError as error:
            failures.append(str(error))
    if damaged is not None:
        raise damaged
    raise DownloadError("; ".join(failures))


def verify(path: Path) -> None:
    """Compare a file with the sum recorded when it was fetched; a file without a record passes."""
    expected = recorded_sum(path)
    if expected and (found := file_sum(path)) != expected:
        raise DataFileError(
            f"{path} has changed since it was fetched: its SHA-256 is {found}, recorded in {SUMS} is "
            f"{expected}. Delete the file to have it fetched again"
        )


def file_sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded_sum(path: Path) -> str | None:
    return _sums(path.with_name(SUMS)).get(path.name)


def _sums(listing: Path) -> dict[str, str]:
    if not listing.exists():
        return {}
    pairs = (line.split(maxsplit=1) for line in listing.read_text(encoding="utf-8").splitlines())
    return {pair[1].lstrip("*"): pair[0].lower() for pair in pairs if len(pair) == 2}


def _record(path: Path, found: str) -> None:
    listing = path.with_name(SUMS)
    sums = _sums(listing) | {path.name: found}
    fresh = _unique_part(listing)
    fresh.write_text("".join(f"{value}  {name}\n" for name, value in sorted(sums.items())), encoding="utf-8")
    fresh.replace(listing)


def _unique_part(path: Path) -> Path:
    """A name of its own for every call, so that two processes fetching one file do not mix their bytes."""
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")


def _mismatch(url: str, path: Path, expected: str, found: str) -> str:
    return (
        f"{url} delivered a file with the SHA-256 {found}, expected was {expected}: it is damaged or was "
        f"changed, and was not kept. Try again; if its publisher replaced it on purpose, remove the line of "
        f"{path.name} from {path.with_name(SUMS)}"
    )


def _with_retries(transfer: _Transfer, retries: int, sleep: Callable[[float], None]) -> None:
    for failures in range(retries + 1):
        try:
            return transfer.attempt()
        except (OSError, http.client.HTTPException) as error:
            if failures == retries or _hopeless(error):
                raise DownloadError(f"cannot fetch {transfer.url}: {_reason(error)}") from error
            sleep(_FIRST_PAUSE * 2**failures)
    return None


def _hopeless(error: Exception) -> bool:
    """Whether trying again at once is a waste: no such page, no such host, nobody there."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code < 500 and error.code not in (408, 429)
    if isinstance(error, urllib.error.URLError):
        final = (socket.gaierror, ConnectionRefusedError, TimeoutError, ssl.SSLCertVerificationError)
        return isinstance(error.reason, (*final, str)) or _is_unreachable(error.reason)
    return isinstance(error, OSError) and error.filename is not None  # the local file, not the network


def _is_unreachable(reason: object) -> bool:
    return isinstance(reason, OSError) and reason.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    return str(getattr(error, "reason", None) or error or type(error).__name__)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to http and https, and nowhere else."""

    def http_error_302(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: http.client.HTTPMessage
    ) -> Any:
        """Where we are sent is not printed: it may carry a key."""
        scheme = urlsplit(headers.get("Location") or headers.get("URI") or "").scheme
        if scheme not in ("", *WEB):
            why = f"{msg}, a redirect to {scheme}:, and only those to http and https are followed"
            raise urllib.error.HTTPError(req.full_url, code, why, headers, fp)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def web_opener() -> urllib.request.OpenerDirector:
    """Only the handlers that http and https need: nothing that a server says leads to file: or ftp:."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        _Redirects,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


def _continues(response: http.client.HTTPResponse, done: int) -> bool:
    return response.headers.get("Content-Range", "").startswith(f"bytes {done}-")


def _strong_tag(response: http.client.HTTPResponse) -> str | None:
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else None
