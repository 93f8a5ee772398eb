"""Temporary folders of processes that were killed: removed at the next start, and no others."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gadget_svm.core.file_lock import FileInUseError, lock_file
from gadget_svm.core.temp_folders import LOCK, scratch_folder

OWNER = """
import sys
from gadget_svm.core.temp_folders import scratch_folder
owned = scratch_folder()
scratch = owned.__enter__()
(scratch / "r").mkdir()
print(scratch, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owners(tmp_path, monkeypatch):
    """Starts processes that own a folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started = []

    def start():
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        started.append(owner)
        return owner, Path(owner.stdout.readline().strip())

    yield start
    for owner in started:
        owner.kill()
        owner.communicate()


def test_the_folder_of_a_killed_process_is_removed_and_no_other(owners, tmp_path):
    dead, folder = owners()
    alive, other = owners()
    foreign = tmp_path / "gadget-of-somebody"
    foreign.mkdir()
    with pytest.raises(FileInUseError, match=f"process {alive.pid}"):
        lock_file(other / LOCK)
    dead.kill()
    dead.wait()
    assert folder.exists()
    with scratch_folder() as scratch:
        assert not folder.exists()
        assert other.exists()
        assert foreign.exists()
        assert (scratch / LOCK).exists()
    assert not scratch.exists()


def test_a_lock_is_released(tmp_path, monkeypatch):
    first = lock_file(tmp_path / "lock")
    with pytest.raises(FileInUseError, match=f"process {os.getpid()}"):
        lock_file(tmp_path / "lock")
    monkeypatch.setattr("gadget_svm.core.file_lock.LOCKS", tmp_path / "absent")
    with pytest.raises(FileInUseError, match="another process"):
        lock_file(tmp_path / "lock")
    first.release()
    lock_file(tmp_path / "lock").release()
