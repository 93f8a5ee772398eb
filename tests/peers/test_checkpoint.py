"""Checkpoints: what was saved comes back whole after a kill, a full disk or a damaged file, or a sentence says why."""

import errno
import json
import os
import pickle
import random
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
import tracemalloc
import zlib
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from gadget_svm.peers import checkpoint, statefile
from gadget_svm.peers.checkpoint import CheckpointError, Lock, load, save

ARRAYS = {
    "w": np.arange(6, dtype=np.float64).reshape(2, 3),
    "flags": np.array([True, False, True]),
    "seen": np.array([1, 2**40], dtype=np.int64),
}
ABOUT = {"n": 1, "name": "site-ä", "list": [1, None, {"deep": 0.1}]}
SOURCE = str(Path(checkpoint.__file__).parents[2])


def put(folder, n):
    return save(folder, {"a": np.full(7, n, dtype=np.float64), "b": np.array(n)}, {"n": n})


def got(folder):
    """The number of the state that comes back, checked to be one state and not a mixture."""
    loaded = load(folder)
    n = loaded.about["n"]
    assert (loaded.arrays["a"] == n).all()
    assert loaded.arrays["b"] == n
    return n


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".part"))


def forged(folder, header, body=b"", generation=9, version=1, magic=b"GADGETCP", header_size=None):
    """A file whose checksums fit, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-(36 + len(text)) % 64)
    size = 36 + len(text) + len(body) + 32
    front = struct.pack("<8sIIQQ", magic, version, header_size or len(text), generation, size)
    content = front + struct.pack("<I", zlib.crc32(front)) + text + body
    folder.mkdir(exist_ok=True)
    path = folder / "state.0"
    path.write_bytes(content + blake2b(content, digest_size=32).digest())
    return path


# ---- what was saved comes back


def test_what_was_saved_comes_back(tmp_path):
    path = save(tmp_path, ARRAYS, ABOUT)
    loaded = load(tmp_path)
    assert loaded.about == ABOUT
    assert (loaded.path, loaded.warnings) == (path, [])
    assert list(loaded.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded.arrays[name], array, strict=True)


@pytest.mark.parametrize("kind", sorted(statefile.DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4), (1,) * 20])
def test_every_kind_and_shape_comes_back(tmp_path, kind, shape):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(kind)
    save(tmp_path, {"x": array, "after": np.ones(3)}, {})
    arrays = load(tmp_path).arrays
    np.testing.assert_array_equal(arrays["x"], array, strict=True)
    np.testing.assert_array_equal(arrays["after"], np.ones(3))
    arrays["x"][...] = 0  # a state is gone on with: it can be written to
    assert arrays["x"].flags.aligned


def test_bits_come_back_whatever_the_layout_in_memory(tmp_path):
    odd = np.array([np.nan, -0.0, np.inf, 5e-324])
    grid = np.arange(24.0).reshape(4, 6)
    save(tmp_path, {"odd": odd, "turned": grid.T, "steps": grid[::2, ::-3], "fortran": np.asfortranarray(grid)}, {})
    arrays = load(tmp_path).arrays
    assert arrays["odd"].tobytes() == odd.tobytes()
    np.testing.assert_array_equal(arrays["turned"], grid.T)
    np.testing.assert_array_equal(arrays["steps"], grid[::2, ::-3])
    np.testing.assert_array_equal(arrays["fortran"], grid)


def test_numbers_of_the_description_come_back_even_if_not_finite(tmp_path):
    save(tmp_path, {}, {"gap": float("inf"), "large": 2**63, "third": 1 / 3, "unknown": float("nan")})
    about = load(tmp_path).about
    assert (about["gap"], about["large"], about["third"]) == (float("inf"), 2**63, 1 / 3)
    assert about["unknown"] != about["unknown"]


def test_nothing_saved_is_none(tmp_path):
    assert load(tmp_path) is None
    assert load(tmp_path / "missing") is None
    assert not (tmp_path / "missing").exists()


def test_the_newest_comes_back_and_the_one_before_is_kept(tmp_path):
    for n in range(1, 8):
        put(tmp_path, n)
        assert got(tmp_path) == n
        assert len([path for path in tmp_path.iterdir() if path.name in checkpoint.SLOTS]) == min(n, 2)
    load(tmp_path).path.unlink()
    assert got(tmp_path) == 6
    assert put(tmp_path, 8).exists()
    assert got(tmp_path) == 8


@pytest.mark.parametrize(
    "bad",
    [
        np.array([{}], dtype=object),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array([1j]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.zeros(2, dtype=[("a", "f8")]),
        np.arange(3, dtype=">f8"),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        [1.0, 2.0],
        None,
    ],
    ids=lambda bad: str(getattr(bad, "dtype", type(bad).__name__)) + type(bad).__name__,
)
def test_only_listed_kinds_are_saved(tmp_path, bad):
    put(tmp_path, 1)
    with pytest.raises(TypeError, match="cannot hold 'x'"):
        save(tmp_path, {"x": bad}, {})
    assert got(tmp_path) == 1


@pytest.mark.parametrize("about", [{"x": object()}, {"x": {1: 2}}, {7: 1}, {"x": [({2: 3},)]}, {"x": np.arange(2)}])
def test_a_description_that_would_not_come_back_is_refused(tmp_path, about):
    with pytest.raises(TypeError):
        save(tmp_path, {}, about)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "x" * 201, 7])
def test_names_of_arrays_are_bounded(tmp_path, name):
    with pytest.raises(TypeError, match="names are texts"):
        save(tmp_path, {name: np.ones(1)}, {})


def test_a_description_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(statefile, "LARGEST_HEADER", 1000)
    with pytest.raises(ValueError, match="at most 1000"):
        save(tmp_path, {}, {"x": "y" * 1000})
    save(tmp_path, {}, {"x": "y" * 900})
    monkeypatch.setattr(statefile, "LARGEST_HEADER", 500)
    with pytest.raises(CheckpointError, match="impossible size"):
        load(tmp_path)


def test_saving_streams_and_loading_takes_one_buffer(tmp_path):
    size = 32 << 20
    array = np.ones(size // 8)
    tracemalloc.start()
    try:
        save(tmp_path, {"x": array}, {})
        saving = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        loaded = load(tmp_path)
        loading = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert saving < size / 8
    assert loading < size * 9 / 8
    assert loaded.arrays["x"].size == array.size


# ---- damage


def small(folder):
    save(folder, {"x": np.arange(3, dtype=np.int16)}, {"n": 2})
    return (folder / "state.0").read_bytes()


def refused(folder, content):
    (folder / "state.0").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"no good state is left in .*: state\.0 (is|has|does not)"):
        load(folder)


def test_a_file_cut_off_anywhere_is_found_out(tmp_path):
    content = small(tmp_path)
    for length in range(len(content)):
        refused(tmp_path, content[:length])
    refused(tmp_path, content + b"\0")
    refused(tmp_path, content + content)
    (tmp_path / "state.0").write_bytes(content)
    assert load(tmp_path).about == {"n": 2}


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_changed_byte_is_found_out(tmp_path, mask):
    content = small(tmp_path)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= mask
        refused(tmp_path, bytes(changed))


def test_stretches_of_zeros_are_found_out(tmp_path):
    """As file systems leave them after a power cut."""
    content = small(tmp_path)
    for start in range(0, len(content), 16):
        blanked = content[:start] + bytes(len(content) - start)
        refused(tmp_path, blanked)


@pytest.mark.parametrize("damage", [b"", b"noise", "cut", "flip"])
def test_a_damaged_file_is_set_aside_and_the_one_before_used(tmp_path, damage):
    put(tmp_path, 1)
    newest = put(tmp_path, 2)
    content = newest.read_bytes()
    broken = {"cut": content[:-9], "flip": content[:99] + bytes([content[99] ^ 4]) + content[100:]}.get(damage, damage)
    newest.write_bytes(broken)
    loaded = load(tmp_path)
    assert loaded.about == {"n": 1}
    assert loaded.path != newest
    (warning,) = loaded.warnings
    assert str(newest) in warning
    assert f"going on from {loaded.path.name}, saved 20" in warning
    assert f"kept as {newest.name}.damaged" in warning
    assert not newest.exists()
    assert (tmp_path / f"{newest.name}.damaged").read_bytes() == broken
    assert load(tmp_path).warnings == []
    assert put(tmp_path, 3) == newest
    assert got(tmp_path) == 3


def test_a_damaged_older_file_is_named_too(tmp_path):
    older = put(tmp_path, 1)
    put(tmp_path, 2)
    older.write_bytes(b"")
    assert [warning.split(":")[0] for warning in load(tmp_path).warnings] == [f"{older} is empty"]
    assert got(tmp_path) == 2


def test_a_save_prefers_the_damaged_slot_to_the_good_one(tmp_path):
    older = put(tmp_path, 1)
    newer = put(tmp_path, 2)
    newer.write_bytes(b"noise")
    assert put(tmp_path, 3) == newer
    newer.unlink()
    assert load(tmp_path).path == older


def test_a_damaged_generation_does_not_pass_for_the_newest(tmp_path):
    older = put(tmp_path, 1)
    newer = put(tmp_path, 2)
    content = older.read_bytes()
    older.write_bytes(content[:16] + b"\xff" * 8 + content[24:])
    assert put(tmp_path, 3) == older
    assert load(tmp_path).path == older
    older.unlink()
    assert load(tmp_path).path == newer


def test_no_good_state_is_an_error_again_and_again(tmp_path):
    """If the files were set aside, the next start would begin from nothing without a word."""
    for n in (1, 2):
        path = put(tmp_path, n)
        path.write_bytes(path.read_bytes()[:-1])
    for _ in range(3):
        with pytest.raises(CheckpointError, match=r"state\.0 has .*; state\.1 has .*move the files away"):
            load(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.0", "state.1"]


def test_a_disk_that_cannot_read_is_damage_and_other_errors_are_not(tmp_path, monkeypatch):
    put(tmp_path, 1)
    put(tmp_path, 2)
    real = statefile._read

    def failing(number):
        def read(file, path):
            if path.name == "state.1":
                raise OSError(number, os.strerror(number))
            return real(file, path)

        return read

    monkeypatch.setattr(statefile, "_read", failing(errno.EMFILE))
    with pytest.raises(CheckpointError, match="Too many open files"):
        load(tmp_path)
    monkeypatch.setattr(statefile, "_read", failing(errno.EIO))
    loaded = load(tmp_path)
    assert loaded.about == {"n": 1}
    assert "cannot be read from the disk" in loaded.warnings[0]


def test_a_damaged_file_that_cannot_be_moved_is_still_passed_over(tmp_path, monkeypatch):
    put(tmp_path, 1)
    put(tmp_path, 2).write_bytes(b"")

    def stuck(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stuck)
        loaded = load(tmp_path)
    assert loaded.about == {"n": 1}
    assert "left where it is, moving it failed (Operation not permitted)" in loaded.warnings[0]
    put(tmp_path, 3)
    assert got(tmp_path) == 3


def test_a_state_of_a_later_version_is_neither_read_nor_written_over(tmp_path):
    put(tmp_path, 1)
    path = forged(tmp_path, {"arrays": [], "about": {}}, version=2)
    content = path.read_bytes()
    for act in (load, lambda folder: put(folder, 2)):
        with pytest.raises(CheckpointError, match="format 2, this program reads 1"):
            act(tmp_path)
    assert path.read_bytes() == content
    assert leftovers(tmp_path) == []


# ---- hostile files whose checksums fit


def arrays_header(*entries):
    return {"arrays": list(entries), "about": {}}


HOSTILE = {
    "not json": b"{",
    "not text": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "long number": b'{"arrays": [], "about": {"n": ' + b"9" * 5000 + b"}}",
    "a list": [],
    "no about": {"arrays": []},
    "more": {"arrays": [], "about": {}, "more": 1},
    "about a list": {"arrays": [], "about": []},
    "arrays a table": {"arrays": {}, "about": {}},
    "entry a text": arrays_header("x"),
    "entry short": arrays_header(["x", "<f8"]),
    "object": arrays_header(["x", "|O", [8]]),
    "text kind": arrays_header(["x", "<U16", [1]]),
    "void": arrays_header(["x", "|V64", [1]]),
    "comma": arrays_header(["x", "f8,f8", [4]]),
    "other order": arrays_header(["x", ">f8", [8]]),
    "kind a list": arrays_header(["x", [["a", "<f8"]], [8]]),
    "negative": arrays_header(["x", "<f8", [-8]]),
    "two negatives": arrays_header(["x", "<f8", [-2, -4]]),
    "truth as length": arrays_header(["x", "|u1", [True, 64]]),
    "fraction": arrays_header(["x", "<f8", [8.0]]),
    "huge": arrays_header(["x", "<f8", [10**12]]),
    "overflow": arrays_header(["x", "<f8", [2**61, 8]]),
    "beyond": arrays_header(["x", "<f8", [9]]),
    "too little": arrays_header(),
    "twice": arrays_header(["x", "<f8", [4]], ["x", "<f8", [4]]),
    "empty and huge": arrays_header(["e", "<f8", [0, 2**61, 2**61]], ["x", "<f8", [8]]),
    "dimensions": arrays_header(["x", "<f8", [8] + [1] * 40]),
    "name a number": arrays_header([7, "<f8", [8]]),
    "name empty": arrays_header(["", "<f8", [8]]),
    "name long": arrays_header(["x" * 1000, "<f8", [8]]),
    "truth 2": arrays_header(["x", "|b1", [64]]),
}


@pytest.mark.parametrize("case", sorted(HOSTILE))
def test_a_file_that_lies_is_refused_without_room_for_its_claims(tmp_path, case):
    path = forged(tmp_path, HOSTILE[case], b"\x02" * 64)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="no good state"):
            load(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * path.stat().st_size + 200_000


def test_the_forger_can_also_tell_the_truth(tmp_path):
    """Otherwise the cases above would be refused for another reason."""
    forged(tmp_path, arrays_header(["x", "<f8", [8]]), b"\x02" * 64)
    assert load(tmp_path).arrays["x"].shape == (8,)


@pytest.mark.parametrize("claim", [2**31, 2**32 - 1, 1])
def test_the_size_of_a_header_is_checked_before_it_is_read(tmp_path, claim):
    forged(tmp_path, arrays_header(), header_size=claim)
    with pytest.raises(CheckpointError, match="impossible size"):
        load(tmp_path)


def test_a_pickle_is_not_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    (tmp_path / "state.0").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="does not begin like a state file"):
        load(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_links_folders_and_pipes_are_not_followed(tmp_path):
    put(tmp_path / "good", 1)
    bad = tmp_path / "bad"
    bad.mkdir()
    slot = bad / "state.0"
    slot.symlink_to(tmp_path / "good" / "state.0")
    with pytest.raises(CheckpointError, match="in place of the link"):
        load(bad)
    slot.unlink()
    os.mkfifo(slot)
    with pytest.raises(CheckpointError, match="is not a file"):
        load(bad)
    slot.unlink()
    slot.mkdir()
    with pytest.raises(CheckpointError, match="is not a file"):
        load(bad)


# ---- killed at any moment

CHILD = """
import os, sys
import numpy as np
from pathlib import Path
from gadget_svm.peers.checkpoint import Lock, load, save
folder = Path(sys.argv[1])
lock = Lock.acquire(folder)
assert not list(folder.glob("*.part")), "stale files"
before = load(folder)
n = before.about["n"] if before else 0
while True:
    n += 1
    size = 40_000 + n % 1000
    save(folder, {"a": np.full(size, n, dtype=np.float64), "b": np.array(n)}, {"n": n, "size": size})
    os.write(1, b"%d\\n" % n)
"""


def started(folder, program=CHILD, **more):
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.Popen([sys.executable, "-c", program, folder], stdout=subprocess.PIPE, env=environment, **more)


def test_a_kill_at_any_moment_loses_nothing_that_was_reported_as_saved(tmp_path):
    rng = random.Random(3)
    caught_writing = reached = 0
    for _ in range(40):
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
        loaded = load(tmp_path)
        assert loaded.warnings == []
        assert loaded.arrays["a"].size == loaded.about["size"]
        n = got(tmp_path)
        assert reported <= n <= reported + 1
        assert n > reached
        reached = n
    assert caught_writing, "no kill fell into a save: the test showed nothing"


def test_the_calls_are_in_the_order_that_survives_a_power_cut(tmp_path, monkeypatch):
    """The file is on disk before its name is, and the name before save returns."""
    put(tmp_path, 1)
    calls = []

    def recorded(name):
        real = getattr(os, name)

        def call(first, *rest):
            what = stat.S_ISDIR(os.fstat(first).st_mode) if name == "fsync" else None
            calls.append((name, "folder" if what else "file"))
            return real(first, *rest)

        monkeypatch.setattr(os, name, call)

    for name in ("write", "fsync", "replace"):
        recorded(name)
    put(tmp_path, 2)
    order = [call for call, before in zip(calls, [None, *calls], strict=False) if call != before]
    assert order == [("write", "file"), ("fsync", "file"), ("replace", "file"), ("fsync", "folder")]


# ---- disks that refuse


def complaint(folder, n):
    try:
        put(folder, n)
    except CheckpointError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync", "replace", "close", "open"])
def test_an_error_at_any_call_leaves_the_newest_state(tmp_path, monkeypatch, call, number):
    put(tmp_path, 1)
    put(tmp_path, 2)
    real = getattr(os, call)
    n, failures = 0, 0
    while True:
        n += 1
        newest = got(tmp_path)
        path = load(tmp_path).path
        content = path.read_bytes()
        count = 0

        def failing(*rest, last=n, **more):
            nonlocal count
            count += 1
            if count == last:
                if call == "close":
                    real(*rest, **more)
                raise OSError(number, os.strerror(number))
            return real(*rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing)
            said = complaint(tmp_path, newest + 1)
        if not said:
            assert count < n, "an error went unheard"
            break
        failures += 1
        assert f"{os.strerror(number)}; {checkpoint.FIXES[number]}" in said
        assert path.read_bytes() == content
        assert got(tmp_path) in (newest, newest + 1)  # the latter where only the folder was not yet on disk
        assert leftovers(tmp_path) == []
    assert failures == n - 1 >= 1
    assert got(tmp_path) == newest + 1


def test_a_disk_that_takes_a_few_bytes_at_a_time_gets_them_all(tmp_path, monkeypatch):
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:5]))
        put(tmp_path, 1)
    assert got(tmp_path) == 1


def test_a_disk_that_takes_nothing_does_not_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", lambda *_: 0)
    with pytest.raises(CheckpointError, match="No space left"):
        put(tmp_path, 1)


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


def test_a_full_disk_keeps_the_states_and_takes_new_ones_when_there_is_room(tiny):
    put(tiny, 1)
    put(tiny, 2)
    for size in (33_000, 50_000, 300_000):
        with pytest.raises(CheckpointError, match="No space left on device; free some space"):
            save(tiny, {"a": np.ones(size)}, {"n": 3})
        assert got(tiny) == 2
        assert leftovers(tiny) == []
    ballast = tiny / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with pytest.raises(CheckpointError, match="No space left on device"):
        put(tiny, 3)
    assert got(tiny) == 2
    ballast.unlink()
    put(tiny, 4)
    assert got(tiny) == 4


def test_a_disk_mounted_read_only_is_a_sentence_and_can_be_read(tiny):
    put(tiny, 1)
    put(tiny, 2).write_bytes(b"")
    subprocess.run(["mount", "-o", "remount,ro", tiny], check=True)
    with pytest.raises(CheckpointError, match="Read-only file system; mount the file system writable"):
        put(tiny, 3)
    with pytest.raises(CheckpointError, match=r"cannot lock the state .*Read-only"):
        Lock.acquire(tiny)
    loaded = load(tiny)
    assert loaded.about == {"n": 1}
    assert "moving it failed (Read-only file system)" in loaded.warnings[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_a_sentence(tmp_path):
    put(tmp_path, 1)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(CheckpointError, match="give the peer's user the right"):
            put(tmp_path, 2)
        assert got(tmp_path) == 1
    finally:
        tmp_path.chmod(0o700)


def test_a_file_in_place_of_the_folder_is_a_sentence(tmp_path):
    (tmp_path / "state").write_text("")
    for act in (lambda folder: put(folder, 1), load, Lock.acquire):
        for folder in (tmp_path / "state", tmp_path / "state" / "deeper"):
            with pytest.raises(CheckpointError, match=r"set \[peer\] state to a folder"):
                act(folder)


def test_folders_and_files_are_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        folder = tmp_path / "deep" / "state"
        put(folder, 1)
        with Lock.acquire(tmp_path / "other"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o700
    files = [*folder.iterdir(), tmp_path / "other" / "lock"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 2


# ---- one process a folder


def test_a_second_holder_is_told_the_first_ones_pid_until_it_lets_go(tmp_path):
    with Lock.acquire(tmp_path) as lock:
        with pytest.raises(CheckpointError, match=rf"in use by process {os.getpid()}: stop that peer"):
            Lock.acquire(tmp_path)
        with pytest.raises(CheckpointError):  # the one refused has not let go in our place
            Lock.acquire(tmp_path)
    lock.release()
    Lock.acquire(tmp_path).release()


def test_the_death_of_its_holder_releases_the_lock(tmp_path):
    child = started(tmp_path)
    try:
        child.stdout.readline()
        with pytest.raises(CheckpointError, match=rf"in use by process {child.pid}:"):
            Lock.acquire(tmp_path)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    Lock.acquire(tmp_path).release()


def test_taking_the_lock_removes_what_killed_writers_left_and_nothing_else(tmp_path):
    put(tmp_path, 1)
    (tmp_path / "state.k3l_x.part").write_bytes(b"half")
    (tmp_path / "state.1.damaged").write_bytes(b"evidence")
    (tmp_path / "notes.part").write_text("a person's")
    with Lock.acquire(tmp_path):
        (tmp_path / "state.abc.part").write_bytes(b"being written")
        with pytest.raises(CheckpointError):
            Lock.acquire(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["lock", "notes.part", "state.0", "state.1.damaged", "state.abc.part"]
    )
    assert got(tmp_path) == 1


def test_a_reader_beside_a_writer_always_sees_a_whole_state(tmp_path):
    child = started(tmp_path)
    try:
        child.stdout.readline()
        seen = [got(tmp_path) for _ in range(200)]
    finally:
        child.kill()
        said = child.stdout.read()
        child.wait()
        child.stdout.close()
    assert seen == sorted(seen)
    assert re.search(rb"\d", said), "nothing was written meanwhile"
    assert load(tmp_path).warnings == []
