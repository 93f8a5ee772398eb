"""Snapshots: what was saved comes back whole after a kill, a full disk or a damaged file, or a message says why not."""

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from gadget_svm.core.state_file import encode_state
from gadget_svm.peers.process import snapshot_store
from gadget_svm.peers.process.snapshot_store import FIXES, KIND, OLD_SLOTS, SLOTS, SnapshotError, SnapshotStore
from gadget_svm.peers.storage.snapshot import Snapshot

SOURCE = str(Path(snapshot_store.__file__).parents[3])


@contextmanager
def opened(folder):
    store = SnapshotStore(folder)
    store.open()
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "state") as found:
        yield found


def numbered(n):
    return Snapshot({"a": np.full(7, n, dtype=np.float64), "b": np.array([n])}, {"n": n})


def loaded(folder):
    """The number of the snapshot that comes back, checked to be one snapshot and not a mixture."""
    found = SnapshotStore(folder).load()
    n = found.about["n"]
    assert (found.arrays["a"] == n).all()
    assert found.arrays["b"] == [n]
    return n


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".part"))


# What was saved comes back


def test_what_was_saved_comes_back(store):
    arrays = {
        "w": np.arange(6, dtype=np.float64).reshape(2, 3),
        "odd": np.array([np.nan, -0.0, np.inf, 5e-324]),
        "flags": np.array([True, False, True]),
        "seen": np.array([1, 2**40], dtype=np.int64),
        "turned": np.arange(24.0).reshape(4, 6).T[::2],
        "empty": np.zeros((0, 3)),
    }
    about = {"n": 1, "name": "site-ä", "list": [1, None, {"deep": 0.1}], "gap": float("inf"), "large": 2**63}
    store.save(Snapshot(arrays, about))
    found = store.load()
    assert found.about == about
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, strict=True)


def test_nothing_saved_is_none(store):
    assert store.load() is None


def test_the_newest_comes_back_and_the_one_before_is_kept(tmp_path):
    for n in range(1, 8):
        with opened(tmp_path) as store:  # a new process each time
            store.load()
            store.save(numbered(n))
        assert loaded(tmp_path) == n
        assert len([path for path in tmp_path.iterdir() if path.name in SLOTS]) == min(n, 2)
    with opened(tmp_path) as store:
        store.load()
        for n in range(8, 11):
            store.save(numbered(n))
            assert loaded(tmp_path) == n
    (tmp_path / SLOTS[1]).unlink()
    assert loaded(tmp_path) == 9


# Damage


@pytest.mark.parametrize("damage", ["cut", "flip", "zeros", "empty", "noise"])
def test_a_damaged_file_is_set_aside_and_the_one_before_used(tmp_path, damage, caplog):
    with opened(tmp_path) as store:
        for n in (1, 2):
            store.save(numbered(n))
    path = tmp_path / SLOTS[1]
    content = path.read_bytes()
    middle = len(content) - 20
    broken = {
        "cut": content[:-9],
        "flip": content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :],
        "zeros": content[:middle] + bytes(20),
        "empty": b"",
        "noise": b"noise",
    }[damage]
    path.write_bytes(broken)
    assert loaded(tmp_path) == 1
    assert "left in place" in caplog.text
    caplog.clear()
    assert path.exists()  # a reader without the lock moves nothing
    with opened(tmp_path) as store:
        assert store.load().about == {"n": 1}
        (warning,) = caplog.messages
        assert str(path) in warning
        assert f"{SLOTS[0]}, saved 20" in warning
        assert f"kept as {SLOTS[1]}.damaged" in warning
        assert (tmp_path / f"{SLOTS[1]}.damaged").read_bytes() == broken
        store.save(numbered(3))
    assert loaded(tmp_path) == 3
    assert (tmp_path / SLOTS[0]).exists()


def test_every_changed_or_missing_byte_is_found(tmp_path):
    with opened(tmp_path) as store:
        store.save(Snapshot({"x": np.arange(3, dtype=np.int16)}, {"n": 2}))
        path = tmp_path / SLOTS[0]
        content = path.read_bytes()
        for place in range(0, len(content), 3):
            changed = bytearray(content)
            changed[place] ^= 0xFF
            for broken in (bytes(changed), content[:place]):
                path.write_bytes(broken)
                with pytest.raises(SnapshotError, match=r"no undamaged state is left|not a peer snapshot"):
                    store.load()


def test_no_undamaged_snapshot_is_an_error_again_and_again(tmp_path):
    """If the files were moved, the next start would begin from scratch without a word."""
    with opened(tmp_path) as store:
        for n in (1, 2):
            store.save(numbered(n))
        for slot in SLOTS:
            (tmp_path / slot).write_bytes(b"x")
        for _ in range(3):
            with pytest.raises(SnapshotError, match=r"no undamaged state is left.*--fresh"):
                store.load()
        assert {path.name for path in tmp_path.iterdir()} >= set(SLOTS)
        moved = store.set_aside()
        assert sorted(path.name for path in moved) == [f"{slot}.old1" for slot in SLOTS]
        assert store.load() is None
        store.save(numbered(1))
        assert [path.name for path in store.set_aside()] == [f"{SLOTS[0]}.old2"]


def test_a_file_that_cannot_be_opened_is_not_taken_for_damaged(tmp_path, monkeypatch):
    with opened(tmp_path) as store:
        for n in (1, 2):
            store.save(numbered(n))
        real = Path.open

        def failing(path, *rest, **more):
            if path.name == SLOTS[1]:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return real(path, *rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", failing)
            with pytest.raises(SnapshotError, match="Too many open files"):
                store.load()
        assert store.load().about == {"n": 2}


def test_a_damaged_file_that_cannot_be_moved_is_passed_over(tmp_path, monkeypatch, caplog):
    with opened(tmp_path) as store:
        for n in (1, 2):
            store.save(numbered(n))
        (tmp_path / SLOTS[1]).write_bytes(b"")

        def stuck(*_):
            raise PermissionError(errno.EPERM, "Operation not permitted")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", stuck)
            assert store.load().about == {"n": 1}
        assert "left in place" in caplog.text


@pytest.mark.parametrize("old", OLD_SLOTS)
def test_the_state_of_an_older_program_is_refused_and_kept(tmp_path, old):
    (tmp_path / old).write_bytes(b"GADGETCP and so on")
    with opened(tmp_path) as store:
        with pytest.raises(SnapshotError, match=r"older version of this program.*--fresh"):
            store.load()
        assert (tmp_path / old).read_bytes() == b"GADGETCP and so on"
        assert [path.name for path in store.set_aside()] == [f"{old}.old1"]
        assert store.load() is None


@pytest.mark.parametrize(("kind", "version"), [(KIND, 1), (KIND, 3), ("model", 2)])
def test_another_version_is_neither_read_nor_overwritten(tmp_path, kind, version):
    content = encode_state(kind, version, {}, {"generation": 1, "about": {}})
    (tmp_path / SLOTS[0]).write_bytes(content)
    with opened(tmp_path) as store, pytest.raises(SnapshotError, match="--fresh"):
        store.load()
    assert (tmp_path / SLOTS[0]).read_bytes() == content
    assert not list(tmp_path.glob("*.damaged"))


# Killed at any moment

CHILD = """
import os, sys
import numpy as np
from pathlib import Path
from gadget_svm.peers.process.snapshot_store import SnapshotStore
from gadget_svm.peers.storage.snapshot import Snapshot
store = SnapshotStore(Path(sys.argv[1]))
store.open()
assert not list(store.folder.glob("*.part")), "stale files"
before = store.load()
assert sorted(path.name for path in store.folder.glob("*.damaged")) == []
n = before.about["n"] if before else 0
while True:
    n += 1
    store.save(Snapshot({"a": np.full(40_000 + n % 1000, n, dtype=np.float64), "b": np.array([n])}, {"n": n}))
    os.write(1, b"%d\\n" % n)
"""


def started(folder):
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.Popen([sys.executable, "-c", CHILD, folder], stdout=subprocess.PIPE, env=environment)


def test_a_kill_at_any_moment_loses_nothing_that_was_reported_as_saved(tmp_path):
    rng = random.Random(3)
    caught_writing = reached = 0
    for _ in range(12):
        child = started(tmp_path)
        first = child.stdout.readline()
        assert first, "the child died by itself"
        time.sleep(rng.uniform(0, 0.02))
        child.send_signal(signal.SIGKILL)
        said = first + child.stdout.read()
        child.stdout.close()
        assert child.wait() == -signal.SIGKILL
        reported = int(said.split()[-1]) if said.endswith(b"\n") else int(said.split()[-2])
        caught_writing += bool(leftovers(tmp_path))
        n = loaded(tmp_path)
        assert reported <= n <= reported + 1
        assert n > reached
        reached = n
    assert caught_writing, "no kill fell into a save: the test showed nothing"


def test_the_calls_are_in_the_order_that_survives_a_power_cut(store, monkeypatch):
    """The file is on disk before its name is, and the name before save returns."""
    calls = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def replaced(path, target):
        calls.append("name")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    store.save(numbered(1))
    assert calls == ["file", "name", "folder"]


# Disks that refuse


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "open", "replace"])
def test_an_error_at_any_call_leaves_the_newest_snapshot(tmp_path, monkeypatch, call, number):
    place = Path if call == "replace" else os
    real, failures = getattr(place, call), 0
    with opened(tmp_path) as store:
        for n in (1, 2):
            store.save(numbered(n))
        while True:
            newest, count = loaded(tmp_path), 0

            def failing(*rest, last=failures + 1, **more):
                nonlocal count
                count += 1
                if count == last:
                    raise OSError(number, os.strerror(number))
                return real(*rest, **more)

            with monkeypatch.context() as patch:
                patch.setattr(place, call, failing)
                try:
                    store.save(numbered(newest + 1))
                except SnapshotError as error:
                    said = str(error)
                else:
                    break
            failures += 1
            assert f"{os.strerror(number)}; {FIXES[number]}" in said
            assert loaded(tmp_path) in (newest, newest + 1)  # the latter where only the folder was not synced
            assert leftovers(tmp_path) == []
        assert failures >= 1
        assert loaded(tmp_path) == newest + 1


@pytest.fixture
def tiny(tmp_path):
    """A disk of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("mounting a small disk needs root")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"mounting a small disk is not allowed here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_keeps_the_snapshots_and_takes_new_ones_when_there_is_room(tiny):
    with opened(tiny) as store:
        for n in (1, 2):
            store.save(numbered(n))
        for size in (33_000, 300_000):
            with pytest.raises(SnapshotError, match="No space left on device; free some space"):
                store.save(Snapshot({"a": np.ones(size)}, {"n": 3}))
            assert loaded(tiny) == 2
            assert leftovers(tiny) == []
        ballast = tiny / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        with pytest.raises(SnapshotError, match="No space left on device"):
            store.save(numbered(3))
        ballast.unlink()
        store.save(numbered(4))
        assert loaded(tiny) == 4


def test_a_disk_mounted_read_only_is_reported_and_can_be_read(tiny):
    with opened(tiny) as store:
        store.save(numbered(1))
    subprocess.run(["mount", "-o", "remount,ro", tiny], check=True)
    with pytest.raises(SnapshotError, match="Read-only file system; mount the file system writable"):
        store.save(numbered(2))
    with pytest.raises(SnapshotError, match=r"cannot lock the state .*Read-only"):
        SnapshotStore(tiny).open()
    assert loaded(tiny) == 1


def test_a_file_in_place_of_the_folder_is_reported(tmp_path):
    (tmp_path / "state").write_text("")
    for folder in (tmp_path / "state", tmp_path / "state" / "deeper"):
        with pytest.raises(SnapshotError, match=r"set \[peer\] state to a folder"):
            SnapshotStore(folder).open()


def test_folders_and_files_are_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        with opened(tmp_path / "deep" / "state") as store:
            store.save(numbered(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((store.folder / SLOTS[0]).stat().st_mode) == 0o600


# One process a folder


def test_a_second_holder_is_told_the_first_ones_pid_until_it_lets_go(tmp_path):
    with opened(tmp_path):
        for _ in range(2):
            with pytest.raises(SnapshotError, match=rf"in use by process {os.getpid()}: stop that peer"):
                SnapshotStore(tmp_path).open()
    with opened(tmp_path) as store:
        store.close()  # idempotent


def test_the_death_of_its_holder_releases_the_folder(tmp_path):
    child = started(tmp_path)
    try:
        child.stdout.readline()
        with pytest.raises(SnapshotError, match=rf"in use by process {child.pid}:"):
            SnapshotStore(tmp_path).open()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    with opened(tmp_path):
        pass


def test_opening_removes_what_killed_writers_left_and_nothing_else(tmp_path):
    with opened(tmp_path) as store:
        store.save(numbered(1))
    for name in (f"{SLOTS[1]}.part", f"{SLOTS[1]}.damaged", "notes.part"):
        (tmp_path / name).write_bytes(b"x")
    with opened(tmp_path):
        pass
    names = {path.name for path in tmp_path.iterdir()} - {"lock"}
    assert names == {SLOTS[0], f"{SLOTS[1]}.damaged", "notes.part"}
