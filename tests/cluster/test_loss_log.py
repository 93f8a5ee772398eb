"""The driver's books, without a cluster: who was lost with what mass, and which checkpoint would be resumed."""

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gadget_svm.cluster import checkpoints
from gadget_svm.cluster.actor import Saved
from gadget_svm.cluster.checkpoint_schedule import Saves, Unsaved
from gadget_svm.cluster.loss_log import MOST_SAID, Account

ABOUT = {"messages": 7, "nbytes": 56, "certificates": 0, "fingerprint": "this", "rows": ["a", "b", "c"]}


def account() -> Account:
    """Three actors of two, three and one nodes."""
    found = Account(np.array([0, 2, 5, 6], dtype=np.int64))
    found.mass = 60.0
    return found


def test_mass_of_several_is_told_with_the_last() -> None:
    books = account()
    books.lost(0, 10, "ActorDiedError")
    books.lost(2, 12, "no answer")
    books.with_transition_of(lambda: 25.0)
    first, last = books.tell()
    assert first["mass_lost_with"] == 2
    assert "mass_lost" not in first
    assert last["mass_lost"] == 35.0
    assert books.mass == 25.0
    assert (first["nodes"], last["nodes"], last["iteration"]) == ([0, 1], [5, 5], 12)
    assert books.tell() == []


def test_one_that_is_lost_while_mass_is_asked_for_is_weighed_too() -> None:
    books, left = account(), [40.0, 15.0]

    def total() -> float:
        if len(left) == 2:
            books.lost(1, 3, "ActorDiedError")
        return left.pop(0)

    books.lost(0, 3, "ActorDiedError")
    books.with_transition_of(total)
    assert not left
    assert books.mass == 15.0
    assert [event.get("mass_lost") for event in books.tell()] == [None, 45.0]


def test_before_the_first_iteration_nothing_is_weighed_yet() -> None:
    books = account()
    books.lost(1, 0, "ActorDiedError")
    books.with_transition_of(lambda: 0.0)
    (event,) = books.tell()
    assert "mass_lost" not in event
    books.with_transition_of(lambda: 48.0)
    assert event["mass_lost"] == 12.0


def test_who_is_here() -> None:
    books = account()
    books.lost(1, 4, "no answer")
    books.lost(1, 9, "no answer")
    assert books.live_mask().tolist() == [True, True, False, False, False, True]
    assert books.gone == {2: 4, 3: 4, 4: 4}
    assert books.last_reason() == "no answer"
    books.back(1, 11, None)
    assert books.live_mask().all()
    assert books.tell()[-1]["from"] is None
    books.lost(0, 12, "no answer")
    books.all_anew()
    assert books.live_mask().all()
    books.with_transition_of(lambda: pytest.fail("nothing is missing any more"))


def test_reasons_are_short_and_of_one_line() -> None:
    books = account()
    books.not_back(0, 1, "ValueError:\n   " + "x" * 1000)
    books.unsaved(2, "y" * 1000)
    failed, unsaved = books.tell()
    assert failed["why"].startswith("ValueError: xx")
    assert len(failed["why"]) == len(unsaved["why"]) == MOST_SAID
    assert unsaved["nodes"] == [0, 5]
    assert unsaved["actor"] is None


def test_without_a_folder_nothing_is_ever_due() -> None:
    assert not Saves(None, 1, 3).due(1000)


def test_checkpoints_are_due_by_iterations_since_the_last_attempt(tmp_path: Path) -> None:
    saves = Saves(str(tmp_path), 100, 3)
    assert [t for t in (1, 99, 100, 150) if saves.due(t)] == [100, 150]
    assert saves.attempt(100, lambda: None) == ""
    assert [t for t in (150, 199, 200) if saves.due(t)] == [200]


def written(*actors: int, t: int) -> dict[int, Saved]:
    return dict.fromkeys(actors, Saved(t))


def test_a_failing_disk_is_told_once_and_tried_again(tmp_path: Path) -> None:
    saves = Saves(str(tmp_path), 100, 3)

    def full() -> None:
        saves.complete({0: Saved(100), 1: Saved(100, "No space left on device")}, {"t": 100, **ABOUT})

    with pytest.warns(UserWarning, match="iteration 100 could not be written .* resumed from iteration 0"):
        assert "No space" in saves.attempt(100, full)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "No space" in saves.attempt(200, full)
        assert saves.attempt(300, lambda: None) == ""
    with pytest.warns(UserWarning, match="iteration 400"):
        saves.attempt(400, full)
    assert saves.last == 0
    assert not saves.kept


def test_errors_of_anything_else_pass(tmp_path: Path) -> None:
    """A new beginning in the middle of a checkpoint may fail as a disk does."""
    saves = Saves(str(tmp_path), 100, 3)

    def absent() -> None:
        raise FileNotFoundError("no shard")

    with pytest.raises(FileNotFoundError, match="no shard"):
        saves.attempt(100, absent)


def test_blocks_of_two_iterations_are_no_checkpoint(tmp_path: Path) -> None:
    saves = Saves(str(tmp_path), 100, 3)
    saves.complete(written(0, 1, 2, t=100), {"t": 100, **ABOUT})
    with pytest.raises(Unsaved, match="actor 2 is at iteration 201"):
        saves.complete({**written(0, 1, t=200), 2: Saved(201)}, {"t": 200, **ABOUT})
    assert checkpoints.load_run(tmp_path)["t"] == saves.last == 100


def test_what_could_not_be_completed_is_not_what_would_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = Saves(str(tmp_path), 100, 3)
    saves.complete(written(0, 1, 2, t=100), {"t": 100, **ABOUT})
    saves.complete(written(0, 2, t=200), {"t": 200, **ABOUT})
    assert saves.behind() == [1]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "write", full)
    with pytest.warns(UserWarning, match="resumed from iteration 200"):
        saves.attempt(300, lambda: saves.complete(written(0, 1, 2, t=300), {"t": 300, **ABOUT}))
    again = Saves(str(tmp_path), 100, 3)
    assert again.read("this", ABOUT["rows"], [])["t"] == 200
    for books in (saves, again):
        assert books.last == 200
        assert books.kept == {0: 200, 1: 100, 2: 200}
        assert books.behind() == [1]


@pytest.mark.parametrize(
    ("fingerprint", "rows", "said"),
    [
        ("other", ["a", "b", "c"], "another run.*number of actors, there 3, must be the same$"),
        ("other", ["a", "x", "c"], r"another run.*; the rows of node 1 \(q.svm\) are not those"),
        ("other", ["x", "y", "z"], "must be the same$"),
        ("this", ["a", "b", "x"], r"the rows of node 2 \(r.svm\) are not those .* put the former ones back"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, fingerprint: str, rows: list[str], said: str) -> None:
    Saves(str(tmp_path), 100, 3).complete(written(0, 1, 2, t=100), {"t": 100, **ABOUT})
    saves = Saves(str(tmp_path), 100, 3)
    with pytest.raises(ValueError, match=said):
        saves.read(fingerprint, rows, ["p.svm", "q.svm", "r.svm"])
    assert saves.last == 0
    assert not saves.kept


def test_nodes_of_actors_follow_one_another() -> None:
    books = account()
    assert all(one[1] == other[0] for one, other in pairwise(books.nodes(index) for index in range(3)))
