"""The inbox: which pushes wait for the learner, and which are refused."""

import numpy as np
import pytest

from gadget_svm.peers.training.inbox import Inbox
from gadget_svm.peers.wire.messages import Push


def push(seq, value=1.0, incarnation=1, note=0.5):
    return Push(incarnation, 1, seq, 0, np.full(13, value), 1.0, note)


@pytest.fixture
def inbox():
    return Inbox({})


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


def test_a_higher_incarnation_shows_a_restart_by_itself(inbox):
    inbox.put(7, push(100))
    inbox.take()
    assert inbox.put(7, push(0, incarnation=2))
    assert not inbox.put(7, push(101))  # of the former life
    messages, restarted = inbox.take()
    assert [message.seq for message in messages] == [0]
    assert restarted == {7}


def test_a_restart_is_told_to_the_learner_once(inbox):
    inbox.put(7, push(100))
    assert inbox.take()[1] == set()
    inbox.put(7, push(0, incarnation=2))
    assert inbox.take()[1] == {7}
    inbox.put(7, push(1, incarnation=2))
    assert inbox.take()[1] == set()


def test_only_pushes_of_one_incarnation_are_compared(inbox):
    inbox.put(7, push(100))
    inbox.put(7, push(0, incarnation=2))
    assert inbox.heard[7].previous is None
    inbox.put(7, push(1, incarnation=2))
    assert inbox.heard[7].previous.seq == 0


def test_which_incarnations_a_learner_knows_survives():
    again = Inbox({7: 4, 8: 5})
    assert not again.put(7, push(1, incarnation=3))
    assert again.put(7, push(1, incarnation=4))
    assert again.put(8, push(0, incarnation=6))
    assert again.take()[1] == {8}


def test_older_pushes_of_a_former_neighbour_stay_old(inbox):
    inbox.put(7, push(5))
    inbox.take()
    inbox.forget(7)
    assert inbox.newest(7) == -1
    assert not inbox.put(7, push(4))
    assert inbox.put(7, push(5))  # it may be repeated
    assert not inbox.put(7, push(5))
    inbox.forget(7)
    assert inbox.put(7, push(0, incarnation=2))
