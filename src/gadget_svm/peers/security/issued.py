"""The files of a certificate authority: their names, the record of what was issued, and writing safely.

Knows no cryptography: keys and certificates are bytes to it.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CA, CA_KEY, REVOKED, RECORD = "ca.pem", "ca.key", "revoked.pem", "issued.json"
FORMAT = "gadget-svm/issued/1"
PRIVATE, PUBLIC = 0o600, 0o644


class CertError(ValueError):
    """Why the authority cannot do what was asked, and how to fix that."""


@dataclass(frozen=True)
class Record:
    """One certificate that was issued."""

    name: str
    serial: int
    hosts: tuple[str, ...]
    not_before: float
    not_after: float
    revoked: float | None = None

    def state(self, now: float) -> str:
        """valid, expired or revoked."""
        return "revoked" if self.revoked is not None else "expired" if now > self.not_after else "valid"


def read_record(folder: Path) -> tuple[int, list[Record]]:
    """Return the number of the last revocation list, and every certificate issued so far."""
    path = folder / RECORD
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']!r}")
        found = [
            Record(**{**entry, "serial": int(entry["serial"], 16), "hosts": tuple(entry["hosts"])})
            for entry in about["certificates"]
        ]
        return int(about["crl_number"]), found
    except FileNotFoundError as error:
        raise CertError(
            f"{path} is missing: name the authority's folder (--ca), or restore the file from a backup; without it no "
            "certificate can be revoked"
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise CertError(f"{path} is damaged ({error!r}): restore it from a backup") from error


def write_record(folder: Path, number: int, records: Sequence[Record]) -> None:
    """Replace the record."""
    entries = [{**vars(record), "serial": f"{record.serial:x}", "hosts": list(record.hosts)} for record in records]
    about = {"format": FORMAT, "crl_number": number, "certificates": entries}
    write_file(folder / RECORD, (json.dumps(about, indent=2) + "\n").encode(), PUBLIC)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder: one process at a time changes the record."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make the folder; a new one is private."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, not a folder: name another place")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def write_file(path: Path, data: bytes, mode: int) -> None:
    """Write the whole file or nothing; its content is never readable by more than ``mode`` allows."""
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # os.open(..., O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
