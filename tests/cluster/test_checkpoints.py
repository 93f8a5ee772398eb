"""Checkpoint files, what is refused, and when one is due."""

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from gadget_svm.cluster import checkpoints
from gadget_svm.cluster.checkpoints import Checkpoints, FolderInUseError, SaveFailedError
from gadget_svm.core.state_file import encode_state, write_atomically

ABOUT = {"messages": 7, "nbytes": 56, "certificates": 0, "fingerprint": "this", "rows": ["a", "b", "c"], "actors": 3}


def test_nothing_is_due_without_a_folder() -> None:
    assert not Checkpoints(None, 1).is_due(1000)


def test_due_by_iterations_since_the_last_attempt(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path), 100)
    assert [t for t in (1, 99, 100, 150) if kept.is_due(t)] == [100, 150]
    kept.note_attempt(100)
    assert [t for t in (150, 199, 200) if kept.is_due(t)] == [200]


def test_failures_in_a_row_are_warned_of_once(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path), 100)
    kept.note_attempt(100)
    with pytest.warns(UserWarning, match=r"iteration 100 could not be written .* resumed from its beginning"):
        kept.warn_of_failure(SaveFailedError("full"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept.warn_of_failure(SaveFailedError("full"))
    kept.complete({"t": 200, **ABOUT})
    with pytest.warns(UserWarning, match="resumed from iteration 200"):
        kept.warn_of_failure(SaveFailedError("full"))


@pytest.mark.parametrize(
    ("fingerprint", "rows", "message"),
    [
        ("other", ["a", "b", "c"], "another run.*number of actors, there 3, must be the same$"),
        ("other", ["a", "x", "c"], r"the rows of node 1 \(q.svm\) are not those"),
        ("other", ["x", "y", "z"], "must be the same$"),
        ("this", ["a", "b", "x"], r"the rows of node 2 \(r.svm\) are not those .* put the former rows back"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    tmp_path: Path, fingerprint: str, rows: list[str], message: str
) -> None:
    Checkpoints(str(tmp_path), 100).complete({"t": 100, **ABOUT})
    kept = Checkpoints(str(tmp_path), 100)
    with pytest.raises(ValueError, match=message):
        kept.read(fingerprint, rows, ["p.svm", "q.svm", "r.svm"])
    assert kept.last == -1
    assert kept.read("this", ABOUT["rows"], [])["t"] == kept.last == 100


def test_an_older_format_is_refused_and_kept(tmp_path: Path) -> None:
    """Also where the run starts from scratch: the files are moved, not overwritten."""
    (tmp_path / "run.json").write_text(json.dumps({"t": 10}))
    (tmp_path / "block-0-2.10.safetensors").write_bytes(b"old")
    assert checkpoints.exists(tmp_path)
    with pytest.raises(ValueError, match=r"older format.*version that wrote it, or start without resume"):
        checkpoints.require_usable(tmp_path, resume=True)
    checkpoints.set_aside(tmp_path)
    (former,) = tmp_path.glob("former-*")
    assert sorted(path.name for path in former.iterdir()) == ["block-0-2.10.safetensors", "run.json"]
    write_atomically(tmp_path / checkpoints.RUN_FILE, encode_state(checkpoints.RUN_KIND, 99, {}, {}))
    with pytest.raises(ValueError, match=r"has version 99.* or start without resume"):
        checkpoints.read_run(tmp_path)


def test_the_block_to_resume_from_is_kept(tmp_path: Path) -> None:
    for t in range(1, 8):
        about = {"t": t, "fingerprint": "this"}
        checkpoints.save_block(tmp_path, 0, 2, {"w": np.full(2, t)}, about, keep=min(t - 1, 3))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"block-0-2.{t}.safetensors" for t in (3, 7)]
    arrays, about = checkpoints.load_block(tmp_path, 0, 2, 3, "this")
    assert (arrays["w"].tolist(), about["t"]) == ([3, 3], 3)
    with pytest.raises(ValueError, match=r"block-0-2\.3\.safetensors is of another run"):
        checkpoints.load_block(tmp_path, 0, 2, 3, "that")
    with pytest.raises(SaveFailedError, match="File exists"):
        checkpoints.save_block(checkpoints.block_file(tmp_path, 0, 2, 7), 0, 2, {}, about, keep=3)
    path = checkpoints.block_file(tmp_path, 0, 2, 7)
    path.write_bytes(path.read_bytes()[:-1])
    for t in (4, 7):
        with pytest.raises(ValueError, match=r"cannot be resumed: .*start without resume"):
            checkpoints.load_block(tmp_path, 0, 2, t, "this")


def test_a_folder_is_for_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        checkpoints.hold(tmp_path),
        pytest.raises(FolderInUseError, match=rf"process {os.getpid()} is running .* one for each run"),
        checkpoints.hold(tmp_path),
    ):
        pass
    with checkpoints.hold(tmp_path):
        pass


def test_half_written_files_do_not_stay(tmp_path: Path) -> None:
    """A new run sets them aside; one that is resumed removes those of its blocks."""
    names = ("block-0-2.30.safetensors.part", f"{checkpoints.RUN_FILE}.part")
    for name in names:
        (tmp_path / name).write_text("half")
    checkpoints.save_block(tmp_path, 0, 2, {}, {"t": 40, "fingerprint": "this"}, keep=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["block-0-2.40.safetensors", names[1]]
    checkpoints.set_aside(tmp_path)
    assert not list(tmp_path.glob("*.*"))


def test_what_cannot_be_used_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"checkpoints cannot be written to .*file"):
        checkpoints.require_usable(tmp_path / "file", resume=False)
    with pytest.raises(FileNotFoundError, match=r"nothing to resume: .*absent"):
        checkpoints.require_usable(tmp_path / "absent", resume=True)
    assert not (tmp_path / "absent").exists()
