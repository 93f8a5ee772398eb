"""The privacy ledger on disk: durable, held by one process, and never replaced by an empty one."""

import pytest

pytest.importorskip("filelock")

from gadget_svm.peers.process.ledger_file import LedgerFile
from gadget_svm.peers.process.snapshot_store import SnapshotError
from gadget_svm.peers.storage.ledger import Ledger

LEDGER = Ledger().reserve("aa", "first", 3, 0.5)


@pytest.fixture
def file(tmp_path):
    found = LedgerFile(tmp_path / "site" / "ledger.json")
    found.open()
    yield found
    found.close()


def test_what_is_saved_is_loaded(file):
    assert file.load() is None
    file.save(LEDGER)
    assert file.load() == LEDGER
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert list(file.path.parent.glob("*.part")) == []


def test_a_ledger_is_held_by_one_process(file):
    with pytest.raises(SnapshotError, match=r"in use by .*stop that peer first"):
        LedgerFile(file.path).open()
    file.close()
    again = LedgerFile(file.path)
    again.open()
    again.close()


def test_a_damaged_ledger_is_an_error_and_stays(file):
    file.path.write_text("{")
    with pytest.raises(SnapshotError, match=r"ledger\.json: it is damaged .*restore a copy"):
        file.load()
    assert file.path.read_text() == "{"
    file.path.write_bytes(b"\xff")
    with pytest.raises(SnapshotError, match="cannot be read"):
        file.load()


def test_a_ledger_that_cannot_be_written_is_an_error(file):
    file.path.mkdir()
    with pytest.raises(SnapshotError, match="cannot write the privacy ledger"):
        file.save(LEDGER)
