"""The files of an authority's folder: the record of the issued certificates. Uses no cryptography."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from gadget_svm.core.state_file import write_atomically
from gadget_svm.peers.security.errors import CredentialsError

CA, CA_KEY, REVOKED, RECORD = "ca.pem", "ca.key", "revoked.pem", "issued.json"
FORMAT = "gadget-svm/issued/1"
PRIVATE, PUBLIC = 0o600, 0o644


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
        """Return "valid", "expired" or "revoked"."""
        return "revoked" if self.revoked is not None else "expired" if now > self.not_after else "valid"


def read_record(folder: Path) -> tuple[int, list[Record]]:
    """Return the number of the last revocation list, and every certificate issued so far."""
    path = folder / RECORD
    fix = "name the authority's folder (--ca), or restore the file from a backup: revoking certificates needs it"
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']!r}")
        typed = (
            {**each, "serial": int(each["serial"], 16), "hosts": tuple(each["hosts"])} for each in about["certificates"]
        )
        return int(about["crl_number"]), [Record(**each) for each in typed]
    except FileNotFoundError as error:
        raise CredentialsError(f"{path} is missing: {fix}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CredentialsError(f"{path} is damaged ({error!r}): restore it from a backup") from error


def write_record(folder: Path, number: int, records: Sequence[Record]) -> None:
    """Replace the record."""
    entries = [{**vars(record), "serial": f"{record.serial:x}", "hosts": list(record.hosts)} for record in records]
    about = {"format": FORMAT, "crl_number": number, "certificates": entries}
    write_atomically(folder / RECORD, (json.dumps(about, indent=2) + "\n").encode(), PUBLIC)


def locked(folder: Path) -> FileLock:
    """Return a lock on the folder. Hold it while the record changes: one process at a time may change it."""
    return FileLock(folder / ".lock", mode=PRIVATE)


def make_folder(folder: Path) -> None:
    """Make the folder. Only its owner can open a new folder."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, not a folder: name another place")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
