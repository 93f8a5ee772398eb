"""The inbox: which pushes wait for the learner, and which are refused."""

from dataclasses import replace

import numpy as np
import pytest

from gadget_svm.peers.training.inbox import Inbox
from gadget_svm.peers.wire.messages import Push
from support.training_kit import study


def push(seq, value=1.0, incarnation=1, note=0.5):
    return Push(incarnation, 1, seq, 0, np.full(13, value), 1.0, note)


@pytest.fixture
def inbox():
    return Inbox(study())


def waiting(inbox):
    return [(message.other, message.seq) for message in inbox.take()[0]]


def test_only_the_newest_push_of_a_sender_waits(inbox):
    assert inbox.put(7, push(3))
    assert inbox.put(7, push(5))
    assert not inbox.put(7, push(5))
    assert not inbox.put(7, push(4))
    assert inbox.put(2, push(1))
    assert waiting(inbox) == [(2, 1), (7, 5)]
    assert waiting(inbox) == []
    assert not inbox.put(7, push(5))
    assert inbox.heard[7].last.seq == 5
    assert inbox.heard[7].previous.seq == 3


def test_a_restarted_sender_counts_from_zero(inbox):
    inbox.put(7, push(100))
    inbox.restart(7)
    assert inbox.put(7, push(0, incarnation=2))
    messages, restarted = inbox.take()
    assert [message.seq for message in messages] == [0]
    assert restarted == {7}
    assert inbox.take() == ([], set())


def test_a_higher_incarnation_shows_a_restart_by_itself(inbox):
    inbox.put(7, push(100))
    assert inbox.put(7, push(0, incarnation=2))
    assert not inbox.put(7, push(101))  # of the former life
    messages, restarted = inbox.take()
    assert [message.seq for message in messages] == [0]
    assert restarted == {7}


def test_a_restart_is_told_to_the_learner_once(inbox):
    inbox.put(7, push(100))
    inbox.restart(7)
    assert inbox.take()[1] == {7}
    inbox.put(7, push(0, incarnation=2))
    assert inbox.take()[1] == set()


def test_which_incarnations_a_learner_knows_survives(inbox):
    inbox.put(7, push(100, incarnation=4))
    inbox.put(8, push(100, incarnation=5))
    inbox.put(9, push(100, incarnation=6))
    inbox.restart(9)
    kept = inbox.incarnations_of([7, 8, 9])
    assert kept == {"7": 4, "8": 5, "9": 0}
    again = Inbox(study())
    again.restore({int(number): incarnation for number, incarnation in kept.items()})
    assert again.put(7, push(1, incarnation=4))
    assert again.put(8, push(0, incarnation=6))
    assert again.put(9, push(0, incarnation=7))
    assert again.take()[1] == {8, 9}


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": 0.0}, {"weight": -1.0}, {"weight": 1e-300}, {"weight": float("nan")}, {"weight": float("inf")},
        {"note": None}, {"note": -1.0}, {"note": float("nan")}, {"note": 1e300}, {"vector": np.ones(12)},
        {"vector": np.full(13, np.nan)}, {"vector": np.full(13, np.inf)}, {"vector": np.full(13, 1e120)},
    ],
)  # fmt: skip
def test_what_pdmm_cannot_have_sent_is_refused(inbox, wrong):
    with np.errstate(over="ignore"):
        assert not inbox.put(7, replace(push(1), **wrong))
    assert waiting(inbox) == []
    assert inbox.put(7, push(0))


def test_gadget_sends_no_note():
    inbox = Inbox(study("gadget"))
    assert not inbox.put(7, push(1))
    assert inbox.put(7, push(1, note=None))
