"""A session of a private study: when it takes a round, waits, repeats itself, and what it goes on with."""

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("dp_accounting")

from gadget_svm.peers.training.session import REPEAT_CALLS, TrainingSession
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.wire.messages import Push
from gadget_svm.study.study import Study

CLASSES = (-1.0, 1.0)


def session(sites=("a", "b"), reserved=0):
    study = Study(
        "s", 0.1, 3, CLASSES, "private", epsilon=1.0, delta=1e-6, clip=1.0, rounds=20, step_size=2.0, sites=sites
    )  # fmt: skip
    rng = np.random.default_rng(0)
    rows = Site(sp.csr_matrix(rng.normal(size=(30, 3))), np.arange(30, dtype=np.int32) % 2, CLASSES)
    found = TrainingSession(study, rows, "a", 0, noise="seeded")
    found.reserved = reserved
    return found


def stepped(one, open_to=()):
    """Do the next step; return what is sent, or None if there is none."""
    step = one.next_step(open_to, True)
    return None if step is None else one.finish(step())


def push(one, seq, value=0.5):
    assert one.receive("b", Push(1, 1, seq, seq, np.full(4, value), 10.0, None, one.scale_digest))


def linked(reserved=20):
    """A session that has an edge to b, and has sent the vector of round 0."""
    one = session()
    assert stepped(one) == ()
    one.reserved = reserved
    one.set_edges(["b"])
    [(name, seq, *_)] = stepped(one, ["b"])
    assert (name, seq, one.rounds_done) == ("b", 0, 0)
    return one


def test_a_round_follows_when_the_neighbour_has_sent_its_vector():
    one = linked()
    assert stepped(one, ["b"]) is None
    push(one, 0)
    [(_, seq, *_)] = stepped(one, ["b"])
    assert (seq, one.rounds_done) == (1, 1)
    assert one.measures is None


def test_a_node_that_waits_repeats_its_vector_now_and_then():
    one = linked()
    sent = [stepped(one, ["b"]) for _ in range(2 * REPEAT_CALLS)]
    assert [found is not None for found in sent] == 2 * [*[False] * (REPEAT_CALLS - 1), True]
    assert {found[0][1] for found in sent if found} == {0}
    assert one.rounds_done == 0


def test_nothing_happens_without_the_neighbour_or_while_sites_are_missing():
    one = linked()
    push(one, 0)
    assert stepped(one, []) is None
    one.held = "waiting for b"
    assert stepped(one, ["b"]) is None
    one.held = ""
    assert stepped(one, ["b"])


def test_no_round_is_done_that_is_not_reserved():
    one = linked(reserved=1)
    push(one, 0)
    assert stepped(one, ["b"])
    assert (one.rounds_done, one.needs_rounds) == (1, True)
    push(one, 1)
    assert stepped(one, ["b"]) is None
    one.reserved = 3
    assert stepped(one, ["b"])
    assert (one.rounds_done, one.needs_rounds) == (2, False)


def alone(reserved, saved=None):
    """A session of the only site of its study, after all that it may do."""
    one = session(sites=("a",), reserved=0)
    if saved is not None:
        one.reserved = saved[1]
        one.restore(saved[0])
    stepped(one)
    one.reserved = reserved
    while stepped(one) is not None and one.rounds_done < one.study.rounds:
        pass
    return one


def test_a_restart_goes_on_after_all_reserved_rounds():
    part = alone(6).snapshot()
    assert int(part[0]["steps"][0]) == 6
    again = session(sites=("a",), reserved=8)
    again.restore(part)
    stepped(again)
    assert again.rounds_done == 8
    assert alone(20, (part, 8))._trainer.learner.released == 12


def test_a_ledger_that_is_older_than_the_state_is_refused():
    part = alone(6).snapshot()
    again = session(sites=("a",), reserved=5)
    with pytest.raises(ValueError, match="ledger has 5 rounds of this study, and the state 6: the ledger is an older"):
        again.restore(part)
