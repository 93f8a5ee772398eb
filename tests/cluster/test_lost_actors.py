"""What the driver knows of lost actors, without a cluster."""

import numpy as np

from gadget_svm.cluster.lost_actors import MAX_REASON_LENGTH, LastKnownState, LossLog


def loss_log() -> LossLog:
    """Three actors of two, three and one nodes."""
    return LossLog(np.array([0, 2, 5, 6], dtype=np.int64))


def test_live_nodes() -> None:
    log = loss_log()
    log.lost(1, 4, "no answer")
    log.lost(1, 9, "no answer")
    assert log.live_mask().tolist() == [True, True, False, False, False, True]
    assert log.lost_since == {2: 4, 3: 4, 4: 4}
    log.restarted(1, 11, None)
    assert log.live_mask().all()
    assert log.take_events()[-1]["from"] is None


def test_reasons_are_short_and_of_one_line() -> None:
    log = loss_log()
    log.restart_failed(0, 1, "ValueError:\n   " + "x" * 1000)
    log.checkpoint_failed(2, "y" * 1000)
    failed, unsaved = log.take_events()
    assert failed["why"].startswith("ValueError: xx")
    assert len(failed["why"]) == len(unsaved["why"]) == MAX_REASON_LENGTH
    assert (unsaved["nodes"], unsaved["actor"]) == ([0, 5], None)


def test_last_known_state() -> None:
    state = LastKnownState(np.array([0, 2, 3], dtype=np.int64))
    assert not state.known("w").any()
    assert state.update("w", {1: np.array([5.0])}).tolist() == [0, 0, 5]
    assert state.known("w").tolist() == [False, False, True]
    assert state.update("w", {0: np.array([1.0, 2.0]), 1: np.array([6.0])}).tolist() == [1, 2, 6]
    assert state.update("w", {0: np.array([3.0, 4.0])}).tolist() == [3, 4, 6]
    assert state.known("w").all()
    assert not state.known("other").any()
