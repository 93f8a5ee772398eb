"""The privacy ledger on disk: one JSON file of a site, which belongs to its rows and outlives studies.

Owns its lock, which one process holds at a time, and durable writes. What it records is that of `storage.ledger`.
"""

from pathlib import Path

from filelock import FileLock

from gadget_svm.core.file_lock import FileInUseError, lock_file
from gadget_svm.core.state_file import write_atomically
from gadget_svm.peers.process.snapshot_store import SnapshotError
from gadget_svm.peers.storage.ledger import Ledger, LedgerError


class LedgerFile:
    """The ledger of one site's rows. Open it before it is read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: FileLock | None = None

    def open(self) -> None:
        """Take the ledger: no other private peer with these rows may run at the same time."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock_file(self.path.with_name(f"{self.path.name}.lock"))
        except FileInUseError as error:
            raise SnapshotError(
                f"the privacy ledger {self.path} is in use by {error}: stop that peer first, as one private study at a "
                "time may use the rows"
            ) from error
        except OSError as error:
            raise SnapshotError(f"cannot lock the privacy ledger {self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Release the ledger. Idempotent."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def load(self) -> Ledger | None:
        """Return the ledger; None if there is none."""
        try:
            return Ledger.parse(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            reason = error if isinstance(error, LedgerError) else f"it cannot be read ({error})"
            raise SnapshotError(f"the privacy ledger {self.path}: {reason}") from error

    def save(self, ledger: Ledger) -> None:
        """Replace the ledger; on return it survives a kill and a power cut. On an error the old one stays."""
        try:
            write_atomically(self.path, ledger.text().encode(), mode=0o600)
        except OSError as error:
            raise SnapshotError(f"cannot write the privacy ledger {self.path}: {error.strerror or error}") from error
