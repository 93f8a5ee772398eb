"""Whom to call of those known by hearsay: few at a time, fairly by who told, and later and later if in vain."""

import pytest

from gadget_svm.peers import strangers
from gadget_svm.peers.member import Member, State
from gadget_svm.peers.overlay import neighbours
from gadget_svm.peers.strangers import CALLS, LINES, SPEAKERS, Strangers

CROWD = [f"x{i}" for i in range(300)]
DEGREE = 4


def at(names):
    return {name: f"{name}:1" for name in names}


def view(*names, state=State.ALIVE):
    return [Member(name, f"{name}:2", 1, 1, state) for name in names]


def names(calls):
    return [name for name, _ in calls]


@pytest.fixture
def a():
    return Strangers("a", DEGREE, 1.0)


def near(met, crowd=CROWD):
    """Those of a crowd whom the overlay would choose beside those who were met, and those whom it would not."""
    wished = [name for name in crowd if name in neighbours("a", {*met, name}, DEGREE)]
    return wished, [name for name in crowd if name not in wished]


def test_those_whom_the_overlay_would_choose_are_called_and_nobody_twice_at_a_time(a):
    met = ["b", "c"]
    called = a.take(met, at(CROWD), 0.0)
    assert set(names(called)) == set(neighbours("a", {*met, *CROWD}, DEGREE)) - set(met)
    assert dict(called).items() <= at(CROWD).items()
    again = a.take(met, at(CROWD), 0.0)
    assert not set(names(again)) & set(names(called))
    for _ in range(10):
        again += a.take(met, at(CROWD), 0.0)
    assert len(called) + len(again) == CALLS


def test_of_few_all_are_called_and_who_answered_is_a_stranger_no_more(a):
    assert names(a.take([], at("bcd"), 0.0)) == ["b", "c", "d"]
    for name in "bcd":
        a.called(name, True, 0.0)
    assert a.take(["b", "c", "d"], {}, 0.0) == []


def test_who_does_not_answer_is_called_after_twice_the_wait_and_the_next_meanwhile(a):
    tried, at_once = [], []
    for now in range(1000):
        calls = names(a.take(["b"], at(["x"]), float(now)))
        tried += [now for _ in calls]
        for name in calls:
            a.called(name, False, float(now))
    assert tried[:5] == [0, 2, 6, 14, 30]
    assert tried[-1] - tried[-2] == tried[-2] - tried[-3] == 128
    for _ in range(200):  # all at one moment: nobody's wait is over
        for name in names(a.take(["b"], at(CROWD), 2000.0)):
            at_once.append(name)
            a.called(name, False, 2000.0)
    assert len(at_once) == len(set(at_once)) == 300


def test_a_newcomer_is_called_on_the_word_of_one_who_knows_it_however_many_another_invents(a):
    met, (wished, _) = ["b", "liar"], near(["b", "liar"])
    for _ in range(20):  # calls that hang, until there is no room for more
        a.named("liar", view(*wished[:31]))
        a.take(met, at(CROWD), 0.0)
    newcomer = wished[-1]
    a.named("b", view(newcomer, *CROWD))
    assert a.take(met, at(CROWD), 0.0) == [(newcomer, f"{newcomer}:2")]  # where b says
    assert a.take(met, at(CROWD), 0.0) == []  # one at a time on b's word, too
    a.called(newcomer, False, 0.0)
    assert names(a.take(met, at(CROWD), 0.0)) == [next(x for x in CROWD if x in wished and x not in wished[:1])]


def test_nobody_is_called_on_the_word_of_a_stranger_nor_of_whom_the_overlay_has_no_use(a):
    met = [f"m{i}" for i in range(50)]
    wished, useless = near(met)
    assert wished
    assert useless
    a.named("m0", view(*useless))
    a.named("nobody", view(*wished))
    assert a.take(met, {}, 0.0) == []
    a.named("m0", view(*useless[: LINES - 1], wished[0]))
    assert names(a.take(met, {}, 0.0)) == wished[:1]  # for whom there may be no room among the members


def test_the_gone_are_not_called(a):
    a.named("b", view("c", state=State.DEAD) + view("d", state=State.LEFT) + [Member("e", "", 1, 1)])
    assert a.take(["b"], {}, 0.0) == []


def test_what_is_kept_is_bounded(a, monkeypatch):
    monkeypatch.setattr(strangers, "MOST", 5)
    for i in range(100):
        a.named(f"s{i}", view(*CROWD))
        a.called(f"y{i}", False, 0.0)
    assert list(a._words) == [f"s{i}" for i in range(100 - SPEAKERS, 100)]
    assert {len(told) for told in a._words.values()} == {LINES}
    assert list(a._in_vain) == [f"y{i}" for i in range(95, 100)]
