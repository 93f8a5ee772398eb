"""Downloads the files of the named data sets: retries, resuming, mirrors and checksums. A file on disk is always
complete, and the same as at its first download. (Libraries for downloads do not resume a broken transfer.)"""

import hashlib
import http.client
import os
import secrets
import time
import urllib.error
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from gadget_svm.core.state_file import write_atomically
from gadget_svm.data.catalog import Mirror, Progress
from gadget_svm.data.files import DataFileError
from gadget_svm.data.uris import WEB
from gadget_svm.data.web import open_web

CHECKSUM_FILE = "SHA256SUMS"
BLOCK_BYTES = 1 << 18
RETRY_DELAYS_S = (0.5, 1.0, 2.0)


class DownloadError(OSError):
    """A download failed; the message names the cause."""


def download_file(
    url: str, target: str | os.PathLike[str], *, sha256: str | None = None, progress: Progress | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:  # fmt: skip
    """Download a file and check it. Return at once if a good copy exists.

    The SHA-256 is compared with ``sha256`` if given, else with the one that the first download recorded in the file
    SHA256SUMS beside the target.

    Parameters
    ----------
    url : an http or https address.
    target : path of the file.
    sha256 : the published checksum.
    progress : called with the bytes downloaded and the bytes in total or None.
    sleep : called with the seconds to wait before a retry.

    Raises
    ------
    DownloadError
        If the file cannot be downloaded.
    DataFileError
        If its checksum is not the expected one. The file is not kept.
    """
    if urlsplit(url).scheme not in WEB:
        raise ValueError(f"only http and https addresses are fetched, not {url!r}")
    path = Path(target)
    expected = sha256 or recorded_checksum(path)
    if expected and path.exists() and checksum(path) == expected:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # a name used by this call only: two processes that download the same file do not mix their bytes
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        _fetch(url, part, progress, sleep)
        found = checksum(part)
        if expected and found != expected:
            raise DataFileError(
                f"{url} delivered a file with the SHA-256 {found}, expected was {expected}: it is not kept. Try again; "
                f"if its publisher has replaced it, remove the line of {path.name} from {path.with_name(CHECKSUM_FILE)}"
            )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    record_checksum(path, found)
    return path


def _fetch(url: str, part: Path, progress: Progress | None, sleep: Callable[[float], None]) -> None:
    """Download to ``part``, with retries.

    Resumes a broken transfer if the server's entity tag (ETag) promises the same bytes. A weak tag does not.
    """
    tag = ""
    for delay in (*RETRY_DELAYS_S, None):
        headers, done = {"User-Agent": "gadget-svm", "Accept-Encoding": "identity"}, 0
        if tag and (done := part.stat().st_size):
            headers |= {"Range": f"bytes={done}-", "If-Range": tag}
        try:
            with open_web(url, headers) as response:
                tag, resumed = response.headers.get("ETag", ""), response.status == 206
                if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
                    tag = ""
                    raise DownloadError("the server resumed at the wrong place")
                tag, done = "" if tag.startswith("W/") else tag, done if resumed else 0
                total = None if response.length is None else done + response.length
                with part.open("ab" if done else "wb") as out:
                    while block := response.read(BLOCK_BYTES):
                        out.write(block)
                        done += len(block)
                        if progress:
                            progress(done, total)
            if total is not None and done != total:
                raise DownloadError(f"the transfer broke off after {done} of {total} bytes")
            return
        except (OSError, http.client.HTTPException) as error:
            if delay is None or not _may_pass(error):
                raise DownloadError(f"cannot fetch {url}: {_reason(error)}") from error
            sleep(delay)


def download_from_mirrors(mirrors: Sequence[Mirror], target: Path, progress: Progress | None = None) -> Path:
    """Download from the first mirror that delivers. The error lists the failures of all mirrors."""
    failures: list[Exception] = []
    for mirror in mirrors:
        try:
            return download_file(mirror.url, target, sha256=mirror.sha256, progress=progress)
        except (DataFileError, DownloadError) as error:
            failures.append(error)
    damaged = [error for error in failures if isinstance(error, DataFileError)]
    raise damaged[-1] if damaged else DownloadError("; ".join(map(str, failures)))


def verify_checksum(path: Path) -> None:
    """Compare a file with the checksum recorded at its download. A file without a record passes."""
    expected = recorded_checksum(path)
    if expected and (found := checksum(path)) != expected:
        change = f"its SHA-256 is {found}, and {CHECKSUM_FILE} has {expected}"
        raise DataFileError(f"{path} has changed since it was fetched: {change}. Delete it to have it fetched again")


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded_checksum(path: Path) -> str | None:
    """Return the SHA-256 recorded for a file, if there is one."""
    return _read_checksums(path.with_name(CHECKSUM_FILE)).get(path.name)


def record_checksum(path: Path, sha256: str) -> None:
    """Write the SHA-256 of a file into the list beside it."""
    listing = path.with_name(CHECKSUM_FILE)
    sums = _read_checksums(listing) | {path.name: sha256}
    write_atomically(listing, "".join(f"{value}  {name}\n" for name, value in sorted(sums.items())).encode())


def _read_checksums(listing: Path) -> dict[str, str]:
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    pairs = (line.split(maxsplit=1) for line in lines if line.strip())
    return {name.lstrip("*"): value.lower() for value, name in pairs}


def _may_pass(error: Exception) -> bool:
    """Return whether a retry may succeed. A missing page, an unknown host and a local disk error need no retry."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code in (408, 429)
    if isinstance(error, urllib.error.URLError):
        return isinstance(error.reason, ConnectionResetError | BrokenPipeError)
    return not (isinstance(error, OSError) and error.filename)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    return str(getattr(error, "reason", None) or error or type(error).__name__)
