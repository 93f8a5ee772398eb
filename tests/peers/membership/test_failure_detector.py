"""The failure detector: rule by rule on one state machine, then many of them in a small world with its own clock."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.peers.membership.failure_detector import JUMP, Changes, FailureDetector, SupersededError
from gadget_svm.peers.membership.member import LARGEST, Member, State
from gadget_svm.peers.membership.overlay import neighbours

ALIVE, SUSPECT, DEAD, LEFT = State
SUSPECTED, DYING = 5.0, 5.0


def line(name="b", incarnation=1, beat=1, state=ALIVE, address=None, **scalars):
    return Member(name, f"{name}:7400" if address is None else address, incarnation, beat, state, **scalars)


class Watcher(FailureDetector):
    """Peer ``a``, which ticks twice a second and collects what changed."""

    def __init__(self, **options):
        super().__init__(line("a"), suspect=SUSPECTED, dead=DYING, **options)
        self.now = 100.0
        self.tick()

    def tick(self):
        return super().tick(self.now)

    def wait(self, seconds):
        """What changed over so many seconds, put together."""
        parts = []
        for _ in range(int(2 * seconds)):
            self.now += 0.5
            parts.append(self.tick())
        return Changes(
            [name for part in parts for name in part.joined],
            [name for part in parts for name in part.left],
            [name for part in parts for name in part.renewed],
            next((part.impostor for part in parts if part.impostor), None),
            next((part.raised for part in parts if part.raised), None),
        )

    def rumour(self, *arguments, **options):
        self.hear(line(*arguments, **options), direct=False)

    def direct(self, *arguments, **options):
        self.hear(line(*arguments, **options), direct=True)


@pytest.fixture
def a():
    return Watcher()


# One member


def test_silence_is_suspicion_then_death_and_is_told_once(a):
    a.rumour()
    assert a.tick().joined == ["b"]
    assert a.wait(4.5) == Changes()
    assert a.table.get("b").state == ALIVE
    assert a.wait(0.5) == Changes()
    assert a.table.get("b").state == SUSPECT
    assert a.table.alive() == ["a", "b"]
    assert a.wait(4.5).left == []
    assert a.wait(20).left == ["b"]
    assert a.table.alive() == ["a"]
    assert [lost.address for lost in a.table.dead()] == ["b:7400"]
    assert a.table.states() == Counter({DEAD: 1})


@pytest.mark.parametrize("number", [(1, 2), (2, 0)])
def test_a_newer_number_revives_the_dead(a, number):
    a.rumour()
    a.wait(12)
    a.rumour("b", *number)
    assert a.tick().joined == ["b"]
    assert a.table.dead() == []


@pytest.mark.parametrize("state", [ALIVE, SUSPECT])
def test_a_number_that_does_not_advance_is_no_sign_of_life(a, state):
    a.rumour(beat=7)
    for _ in range(20):
        a.wait(0.5)
        a.rumour(beat=7, state=state)
        a.rumour(beat=6)
    assert a.tick().left == [] == a.wait(0.5).joined
    assert a.table.get("b").state == DEAD


def test_the_word_of_the_member_itself_is_a_sign_of_life_without_a_new_beat(a):
    a.direct(beat=7)
    for _ in range(30):
        assert a.wait(1).left == []
        a.spoke("b", 1)
    a.wait(12)
    a.spoke("b", 1)  # it was stopped for a while
    assert a.tick().joined == ["b"]


def test_a_letter_from_an_unknown_makes_a_member_whose_address_comes_later(a):
    a.spoke("b", 3)
    assert a.tick().joined == ["b"]
    assert a.table.get("b").address == ""
    a.rumour("b", 3, 4)
    assert a.table.get("b").address == "b:7400"


def test_scalars_come_with_the_newer_line(a):
    a.rumour(beat=5, objective=0.5)
    a.rumour(beat=4, objective=0.7)
    assert a.table.get("b").objective == 0.5
    a.rumour(beat=6, objective=0.4, rows=10.0)
    assert (a.table.get("b").objective, a.table.get("b").rows) == (0.4, 10.0)
    a.beat(objective=0.3, loss=0.1, reachable=False, certified="1-ab")
    assert a.me == replace(line("a"), beat=2, objective=0.3, loss=0.1, reachable=False, certified="1-ab")


# Incarnations


def test_a_new_incarnation_is_renewed_and_joined_only_if_it_was_gone(a):
    a.direct()
    a.tick()
    a.direct(incarnation=2, beat=0)
    assert a.tick() == Changes(renewed=["b"])
    a.wait(12)
    a.direct(incarnation=3, beat=0)
    assert a.tick() == Changes(joined=["b"], renewed=["b"])


def test_an_old_incarnation_is_never_accepted_again(a):
    assert a.accept("b", 1)
    a.direct(incarnation=2)
    assert not a.accept("b", 1)
    assert a.accept("b", 2)
    assert a.accept("b", 3)
    a.direct(incarnation=1, beat=100)
    a.rumour(incarnation=1, beat=100)
    a.leave("b", 1)
    assert a.table.get("b") == line(incarnation=2)
    assert a.wait(12).left == ["b"]  # nor was any of that a sign of life
    a.rumour(incarnation=1, beat=101)
    assert a.tick() == Changes()
    assert not a.accept("a", 1)


def test_a_rumour_of_a_later_incarnation_outlaws_nobody_and_is_no_renewal(a):
    a.direct(incarnation=2)
    a.wait(6)
    a.rumour(incarnation=9)
    assert a.table.get("b").incarnation == 9  # it may be true: b restarted, and talks to others
    assert a.accept("b", 2)
    assert a.tick().renewed == []
    a.direct(incarnation=2, beat=3)  # it was not
    assert a.table.get("b").incarnation == 2
    a.rumour(incarnation=9, beat=50)  # and for a while nothing of the kind is heard
    assert a.table.get("b") == line(incarnation=2, beat=3)


def test_the_first_word_is_heard_whatever_was_said_before(a):
    a.rumour(incarnation=LARGEST, beat=LARGEST, address="evil:1")
    a.direct(incarnation=3)
    assert a.table.get("b") == line(incarnation=3)
    a.wait(6)
    a.rumour(incarnation=4 + JUMP)
    assert a.table.get("b").incarnation == 3
    assert a.table.alive() == ["a", "b"]


def test_a_rumour_of_the_highest_incarnation_is_not_outbid(a):
    """Messages could not carry a higher one."""
    a.rumour("a", LARGEST, address="evil:1")
    assert a.wait(60).raised is None
    a.rumour("a", LARGEST - 1, address="evil:1")
    assert a.me.incarnation == 1


# Goodbyes and opinions


def test_a_goodbye_is_at_once_and_only_a_higher_incarnation_comes_back(a):
    a.direct()
    a.tick()
    a.leave("b", 1)
    assert a.tick().left == ["b"]
    assert not a.accept("b", 1)
    a.direct(beat=9)
    a.rumour(beat=10)
    assert a.tick() == Changes()
    assert a.table.dead() == []
    a.rumour(incarnation=2, beat=0)
    assert a.tick().joined == ["b"]


def test_a_goodbye_and_a_return_between_two_ticks_is_a_renewal(a):
    a.direct()
    a.tick()
    a.leave("b", 1)
    a.direct(incarnation=2)
    assert a.tick() == Changes(renewed=["b"])


def test_a_goodbye_of_an_unknown_is_kept(a):
    a.leave("b", 4)
    a.rumour(incarnation=4, beat=9)
    assert a.tick() == Changes()
    assert not a.accept("b", 4)


def test_a_goodbye_by_hearsay_shortens_the_wait_and_does_not_kill(a):
    a.rumour("b", beat=1)
    a.rumour("c", beat=1)
    a.tick()
    for beat in range(2, 60):
        a.rumour("b", beat=beat)
        a.rumour("b", beat=beat, state=LEFT)
        if beat == 2:
            a.rumour("c", beat=1, state=LEFT)
        changes = a.wait(1)
        assert changes.left == (["c"] if beat == 6 else [])
        assert any(said.name == "b" and said.state == LEFT for said in a.view(9, Random(0)))  # passed on as heard
    assert [lost.name for lost in a.table.dead()] == ["c"]  # nobody saw it leave: worth a call


def test_a_goodbye_by_hearsay_is_not_heard_soon_after_a_word_of_its_own_and_is_news_once(a):
    a.direct()
    a.rumour(state=LEFT)
    a.wait(3)
    assert a.table.suspects() == []
    assert a.view(9, Random(0))[1] == line()
    a.wait(2.5)
    a.rumour(state=LEFT)
    for _ in range(100):
        a.view(9, Random(0))
    a.rumour(state=LEFT)
    for i in range(100):
        a.direct(f"p{i}")
    first = [said.name for _ in range(50) for said in a.view(3, Random(0))[1:2]]
    assert "b" not in first


def test_a_newer_number_is_as_old_a_sign_of_life_as_the_speaker_says(a):
    a.rumour("b", beat=1)
    a.rumour("c", beat=1)
    a.rumour("d", beat=1)
    a.wait(9)
    assert [said.name for said in a.table.suspects()] == ["b", "c", "d"]
    a.rumour("b", beat=2)
    a.rumour("c", beat=2, state=SUSPECT)
    a.rumour("d", beat=2, state=DEAD)
    a.rumour("e", beat=2, state=SUSPECT)
    assert a.wait(1).left == ["d"]
    assert a.wait(4).left == ["c", "e"]
    a.rumour("c", beat=3, state=SUSPECT)  # too late
    assert a.wait(5).joined == []
    assert a.wait(1).left == []
    assert a.table.get("c").beat == 3


@pytest.mark.parametrize("state", [SUSPECT, DEAD, LEFT])
def test_opinions_do_not_harm_one_whose_beats_arrive(a, state):
    a.direct()
    a.tick()
    for beat in range(2, 40):
        a.rumour(beat=beat)
        a.rumour(beat=beat, state=state)
        assert a.wait(1) == Changes()


def test_the_dead_of_others_are_not_news_but_their_numbers_stand(a):
    a.rumour(beat=9, state=DEAD)
    assert a.tick() == Changes()
    a.rumour(beat=9)
    assert a.tick() == Changes()
    a.rumour(beat=10)
    assert a.tick().joined == ["b"]
    a.wait(12)
    a.rumour(beat=12, state=DEAD)  # the last number another has seen
    a.rumour(beat=11)
    assert a.tick().joined == []


def test_one_who_is_called_dead_beats(a):
    for state in (SUSPECT, DEAD):
        before = a.me.beat
        a.rumour("a", 1, before, state)
        assert a.me.beat == before + 1
    a.rumour("a", 1, 1)
    assert a.me.beat == before + 1


# Doubles


def test_a_double_with_a_higher_incarnation_stops_me(a):
    a.direct("a", 1, 1)  # my own call to myself
    a.direct("a", 1, 1, address="Z:1")  # the same incarnation: one of the two addresses yields, and it is not mine
    a.spoke("a", 1)
    a.tick()
    a.direct("a", 2, 1, address="z:1")
    with pytest.raises(SupersededError, match=r"runs as 'a': incarnation 2 at z:1, this one is 1 at a:7400"):
        a.tick()


def test_of_two_copies_of_one_state_exactly_one_stops():
    first, second = Watcher(), Watcher()
    second.table.me = replace(second.me, address="b:7400")
    first.hear(second.me, direct=True)
    second.hear(first.me, direct=True)
    with pytest.raises(SupersededError):
        first.tick()
    second.tick()


def test_a_rumoured_double_is_told_once_and_outbid_if_nobody_proves_it(a):
    a.rumour("a", 7, address="z:1")
    assert a.tick() == Changes(impostor=line("a", 7, address="z:1"))
    a.rumour("a", 7, beat=3, address="z:1")
    assert a.wait(4.5) == Changes()
    assert a.wait(0.5).raised == 8 == a.me.incarnation
    a.rumour("a", 7, beat=9, address="z:1")
    assert a.wait(20) == Changes()


@pytest.mark.parametrize("claim", [line("a", 7), line("a", 1, 99), line("a", 1, 1, LEFT)])
def test_my_own_former_life_is_outbid_at_once(a, claim):
    """A peer that lost its state folder starts low, and others remember it higher, or gone for good."""
    a.hear(claim, direct=False)
    changes = a.tick()
    assert changes.impostor == claim
    assert changes.raised == claim.incarnation + 1


def test_one_who_is_refused_learns_the_number_to_outbid(a):
    a.direct("b", 7)
    a.leave("b", 7)
    a.wait(1)
    assert not a.accept("b", 1)
    assert a.table.known("b") == line("b", 7, state=LEFT)
    assert a.table.known("c") is None
    assert a.table.known("a") == a.me


def test_lies_about_me_raise_me_only_so_often_and_never_stop_me(a):
    raised = 0
    for _ in range(4000):
        a.rumour("a", a.me.incarnation + 5, address="z:1")
        raised += a.wait(1).raised is not None
    assert 8 <= raised <= 11  # 5 + 10 + 20 + ... seconds: log2(4000 / 5) = 9.6


def test_doubles_who_cannot_call_each_other_do_not_contend_forever():
    first, second, raised = Watcher(), Watcher(), 0
    second.table.me = replace(second.me, address="b:7400", incarnation=2)
    for _ in range(4000):
        first.hear(second.me, direct=False)
        second.hear(first.me, direct=False)
        raised += (first.wait(1).raised is not None) + (second.wait(1).raised is not None)
    assert 2 <= raised <= 22


# Time


@pytest.mark.parametrize("jump", [5.5, 86400.0, -86400.0])
def test_a_pause_of_mine_or_a_jump_of_the_clock_kills_nobody(a, jump):
    for i in range(50):
        a.rumour(f"p{i}")
    a.wait(4)
    a.now += jump
    assert a.tick().left == []
    assert a.wait(5).left == []
    assert len(a.wait(1.5).left) == 50  # and the count goes on where it stood


def test_one_who_is_always_late_sees_the_dead_all_the_same(a):
    a.rumour()
    left = []
    for _ in range(8):
        a.now += 6
        left += a.tick().left
    assert left == ["b"]


# Bounds


def test_a_view_is_me_then_news_then_anyone_and_one_of_the_gone(a):
    rng = Random(1)
    assert a.view(5, rng) == (a.me,)
    for i in range(100):
        a.rumour(f"p{i}")
    for _ in range(2000):
        a.view(11, rng)  # by now nothing is new
    a.wait(3)
    a.rumour("new")
    a.leave("p0", 1)
    for _ in range(10):
        view = a.view(11, rng)
        names = [said.name for said in view]
        assert names[0] == "a"
        assert set(names[1:3]) == {"new", "p0"}
        assert len(names) == len(set(names)) == 11
        assert {said.state for said in view if said.name == "p0"} == {LEFT}
    a.leave("q0", 7)  # of whom nothing else was ever heard
    for _ in range(20):
        a.view(11, rng)  # news gets old
    views = [a.view(11, rng) for _ in range(1000)]
    assert all(len(view) == 11 for view in views)
    told = Counter(said.name for view in views for said in view)
    assert told["p0"] + told["q0"] == 1000  # one in a view, whichever
    assert min(told["p0"], told["q0"]) > 400
    assert all(told[f"p{i}"] > 40 for i in range(1, 100))
    assert [len(a.view(count, rng)) for count in (1, 2, 3)] == [1, 2, 3]


def test_the_last_incarnation_of_everybody_is_known_and_can_be_remembered(a):
    a.rumour("b")
    a.leave("c", 7)
    a.hear(line("d", incarnation=9, state=DEAD), direct=False)
    assert [a.table.known(name).incarnation for name in ("b", "c", "d")] == [1, 7, 9]
    assert a.table.incarnations() == {"b": 1, "c": 7, "d": 9}
    again = FailureDetector(a.me, suspect=3.0, dead=3.0)
    for name, number in {**a.table.incarnations(), "a": 99}.items():
        again.remember(name, number)
    assert again.table.incarnations() == a.table.incarnations()
    assert again.table.alive() == ["a"]
    again.hear(line("b", incarnation=1, beat=1), direct=False)  # gone, until it shows itself
    again.hear(line("c", incarnation=6, beat=9), direct=False)
    assert again.table.alive() == ["a", "b"]
    assert again.table.get("b").address
    assert again.accept("c", 6)  # only its own word would outlaw it


def test_who_says_where_nobody_is_does_not_take_an_address_away(a):
    a.rumour("b")
    before = a.table.get("b").address
    a.hear(Member("b", "", 2, 0, LEFT), direct=False)
    assert (a.table.known("b").incarnation, a.table.get("b").address) == (2, before)
    assert before


def test_the_number_of_members_is_bounded_and_who_spoke_stays():
    a = Watcher(limit=20)
    for i in range(5):
        a.direct(f"d{i}")
    for i in range(1000):
        a.rumour(f"r{i}")
    assert a.table.alive() == sorted(["a", *(f"d{i}" for i in range(5)), *(f"r{i}" for i in range(14))])  # first come
    for i in range(5, 19):
        a.direct(f"d{i}")
    a.direct("late")
    assert a.table.alive() == sorted(["a", *(f"d{i}" for i in range(19))])
    assert a.tick().joined == a.table.alive()[1:]  # the rumoured came and went between two ticks
    a.wait(12)
    for i in range(1000):
        a.rumour(f"s{i}", state=DEAD)
        a.leave(f"t{i}", 1)
        a.rumour(f"u{i}")
    assert a.table.alive() == ["a"]  # hearsay displaces nobody who spoke, not even the dead
    assert len(a.table.records) < 20
    assert len(a.table.tombstones) <= 20
    assert len(a._queue) <= len(a.table.records)


def test_only_who_spoke_itself_was_met_and_stays_so_through_death_and_return_by_hearsay(a):
    a.rumour("b")
    a.direct("c")
    a.rumour("d", 2)
    assert a.table.alive() == ["a", "b", "c", "d"]
    assert a.table.verified() == ["c"]
    assert [said.name for said in a.table.unverified()] == ["b", "d"]
    a.wait(12)
    assert a.table.verified() == []
    assert [a.table.is_verified(name) for name in "bcx"] == [False, True, False]
    a.rumour("c", incarnation=2)
    assert a.table.verified() == ["c"]
    before = a.table.version
    a.spoke("b", 1)
    assert sorted(a.table.verified()) == ["b", "c"]
    a.direct("b", beat=8)
    assert a.table.version > before


def test_the_invented_make_room_before_those_who_were_met_even_if_these_are_gone():
    a = Watcher(limit=20)
    for i in range(6):
        a.direct(f"d{i}")
    a.leave("d5", 1)
    a.wait(12)
    for i in range(4):
        a.direct(f"d{i}", beat=2)
    for i in range(1000):
        a.rumour(f"x{i}")
        a.rumour(f"y{i}", state=DEAD)
    assert [said.name for said in a.table.dead()] == ["d4"]
    a.direct("late")
    assert sorted(a.table.verified()) == ["d0", "d1", "d2", "d3", "late"]
    assert [said.name for said in a.table.dead()] == ["d4"]
    assert not a.accept("d5", 1)
    for i in range(14):
        a.direct(f"e{i}")
    assert len(a.table.verified()) == 19  # and these displace the gone
    assert a.table.dead() == []
    assert a.table.unverified() == []


def test_those_who_were_met_are_in_every_view_and_first_whatever_is_invented(a):
    for name in "bcd":
        a.direct(name)
    for i in range(500):
        a.rumour(f"x{i}")
    rng, told = Random(0), Counter()
    for _ in range(300):  # when news of those three has long become old
        _, *others = [said.name for said in a.view(8, rng)]
        spoke = [name for name in others if name in "bcd"]
        assert others[: len(spoke)] == spoke != []
        told.update(spoke)
    assert set(told) == set("bcd")
    a.direct("new")
    assert all("new" in [said.name for said in a.view(8, rng)][:3] for _ in range(10))
    a.direct("x7", beat=2)  # is news still, and now of one who was met
    assert "x7" in [said.name for said in a.view(8, rng)][:4]


def test_one_displaced_after_it_was_told_is_told_as_left():
    a = Watcher(limit=3)
    a.rumour("r0")
    a.rumour("r1")
    assert a.tick().joined == ["r0", "r1"]
    a.direct("d0")
    assert a.tick() == Changes(joined=["d0"], left=["r0"])


def test_one_of_the_forgotten_comes_back_though_its_place_among_them_is_taken():
    a = Watcher(limit=2)
    a.rumour("x")
    a.rumour("g1", state=DEAD)
    a.rumour("g2", state=DEAD)
    a.wait(12)  # x is gone, and makes room
    a.rumour("g1", beat=2)
    assert a.tick().joined == ["g1"]
    assert a.table.alive() == ["a", "g1"]


def test_the_forgotten_do_not_come_back_from_old_views():
    a = Watcher(forget=60.0)
    a.direct(incarnation=3, beat=8)
    a.wait(80)
    assert a.table.dead() == []
    assert a.table.states() == Counter()
    with pytest.raises(KeyError):
        a.table.get("b")
    for old in (line("b", 3, 8), line("b", 3, 8, DEAD), line("b", 2, 99), line("b", 3, 7, SUSPECT)):
        a.hear(old, direct=False)
    a.direct("b", 2, 99)
    assert a.tick() == Changes()
    assert not a.accept("b", 2)
    a.direct("b", 4, 0)
    assert a.tick() == Changes(joined=["b"], renewed=["b"])


# Properties

LINES = st.builds(
    line, st.sampled_from("bcd"), st.integers(1, 4), st.integers(0, 6), st.sampled_from(State), st.just("x:1")
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rumour"), LINES),
        st.tuples(st.just("direct"), LINES),
        st.tuples(st.just("heard"), LINES),
        st.tuples(st.just("leave"), LINES),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 3, 6, 40])),
    ),
    max_size=40,
)


def step(a, what, value):
    if what == "wait":
        return a.wait(value)
    if what == "heard":
        a.spoke(value.name, value.incarnation)
    elif what == "leave":
        a.leave(value.name, value.incarnation)
    else:
        a.hear(value, direct=what == "direct")
    return a.tick()


@settings(max_examples=300)
@given(STEPS)
def test_numbers_go_back_only_by_the_members_own_word_and_the_proven_never(steps):
    a, present, accepted = Watcher(forget=30.0, limit=50), set(), {}
    for what, value in steps:
        before = {name: a.table.known(name) for name in "bcd"}
        changes = step(a, what, value)
        for name, old in before.items():
            new = a.table.known(name)
            if old is not None and what in ("rumour", "wait"):
                assert (new.incarnation, new.beat) >= (old.incarnation, old.beat)
            lowest = next(i for i in range(1, 6) if a.accept(name, i))
            assert lowest >= accepted.get(name, 1)
            accepted[name] = lowest
        assert not present & set(changes.joined) or what == "wait"
        present = (
            (present | set(changes.joined)) - set(changes.left) if what != "wait" else set(a.table.alive()) - {"a"}
        )
        assert sorted({"a", *present}) == a.table.alive()
        assert all(a.table.get(name).state in (ALIVE, SUSPECT) for name in present)


@settings(max_examples=200)
@given(st.lists(LINES, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_rumours_in_any_order_end_in_the_same_numbers(lines, random):
    shuffled = random.sample(lines, len(lines))
    first, second = Watcher(), Watcher()
    for one, other in zip(lines, shuffled, strict=True):
        first.hear(one, direct=False)
        second.hear(other, direct=False)
    for name in "bcd":
        one, other = first.table.known(name), second.table.known(name)
        assert (one is None) == (other is None)
        if one is not None:
            assert (one.incarnation, one.beat) == (other.incarnation, other.beat)
            highest = max((said.incarnation, said.beat) for said in lines if said.name == name)
            assert (one.incarnation, one.beat) == highest


@settings(max_examples=200)
@given(st.lists(LINES.map(lambda said: replace(said, state=ALIVE)), min_size=1, max_size=12), st.data())
def test_signs_of_life_in_any_order_and_repeated_end_in_the_same_state(lines, data):
    first, second = Watcher(), Watcher()
    for said in lines:
        first.hear(said, direct=False)
    for said in data.draw(st.permutations(lines + lines)):
        second.hear(said, direct=False)
    assert first.tick() == second.tick()
    assert [first.table.get(name) for name in first.table.alive()] == [
        second.table.get(name) for name in second.table.alive()
    ]


# A world of many


@lru_cache
def overlay(name, names):
    return neighbours(name, dict.fromkeys(names, True), 4)


class World:
    """Peers that exchange views of 16 lines with their overlay neighbours, twice a second, over links that may fail."""

    def __init__(self, n, seed=0, loss=0.0, view=16):
        self.rng, self.loss, self.size, self.now = Random(seed), loss, view, 0.0
        self.up = lambda a, b: True  # noqa: ARG005
        self.peers: dict[str, FailureDetector] = {}
        self.joined, self.left, self.renewed = Counter(), Counter(), Counter()
        for i in range(n):
            self.start(f"p{i}")

    def start(self, name, incarnation=1):
        self.peers[name] = FailureDetector(line(name, incarnation, 0), suspect=SUSPECTED, dead=DYING)

    def call(self, a, b):
        """A letter and its answer; either may be lost."""
        for sender, receiver in ((a, b), (b, a)):
            if receiver not in self.peers or not self.up(a, b) or self.rng.random() < self.loss:
                return
            if not self.peers[receiver].accept(sender, self.peers[sender].me.incarnation):
                return
            for said in self.peers[sender].view(self.size, self.rng):
                self.peers[receiver].hear(said, direct=said.name == sender)

    def round(self, rounds=1):
        for _ in range(rounds):
            self.now += 0.5
            for name, peer in list(self.peers.items()):
                peer.beat()
                changes = peer.tick(self.now)
                for told, counter in ((changes.joined, self.joined), (changes.left, self.left)):
                    counter.update((name, other) for other in told)
                self.renewed.update((name, other) for other in changes.renewed)
                self.talk(name, peer)

    def talk(self, name, peer):
        """Calls to the neighbours, or to the seed; to one of the suspected; now and then to one of the dead."""
        alive, doubtful, lost = peer.table.alive(), peer.table.suspects(), peer.table.dead()
        for other in overlay(name, tuple(alive)) if len(alive) > 1 else ["p0"] * (name != "p0"):
            self.call(name, other)
        if doubtful:
            self.call(name, self.rng.choice(doubtful).name)
        if lost and self.rng.random() < 0.1:
            self.call(name, self.rng.choice(lost).name)

    def agree(self, names=None):
        names = sorted(self.peers if names is None else names)
        return all(self.peers[name].table.alive() == names for name in names)

    def until_agreed(self, most, names=None):
        for rounds in range(1, most + 1):
            self.round()
            if self.agree(names):
                return rounds
        raise AssertionError(f"no agreement after {most} rounds")


@pytest.mark.parametrize("n", [8, 32, 128])
def test_everyone_learns_of_everyone_from_one_seed(n):
    """O(log n) rounds as long as the news fits the views; 128 names in views of 16 lines need some more."""
    assert World(n).until_agreed(3 * n.bit_length()) >= 2


def test_a_crash_is_seen_by_all_and_told_once():
    world = World(30)
    world.until_agreed(20)
    world.round(20)
    del world.peers["p7"]
    world.round(60)
    assert world.agree()
    assert set(world.left.values()) == {1}
    assert len(world.left) == 29


def test_neighbours_cut_off_from_each_other_meet_by_calling_the_suspected():
    """The overlay of all names, cut down to the living, may fall apart before the dead are known."""
    world = World(24)
    world.until_agreed(20)
    for i in range(0, 24, 2):
        del world.peers[f"p{i}"]
    living = nx.Graph((a, b) for a in world.peers for b in overlay(a, tuple(world.peers["p1"].table.alive())))
    assert not nx.is_connected(living.subgraph(world.peers))
    world.until_agreed(60)
    assert not {other for _, other in world.left} & set(world.peers)


def test_a_partition_splits_the_world_and_heals():
    world = World(24)
    world.until_agreed(20)
    halves = [{f"p{i}" for i in range(24) if i % 2 == side} for side in (0, 1)]
    world.up = lambda a, b: (a in halves[0]) == (b in halves[0])
    world.round(60)
    assert all(world.agree(half) for half in halves)
    world.up = lambda a, b: True  # noqa: ARG005
    world.until_agreed(40)
    world.round(100)
    assert world.agree()
    assert sum((a in halves[0]) != (b in halves[0]) for a, b in world.left) == 2 * 12 * 12
    assert not world.renewed


def test_a_late_joiner_is_known_to_all_soon():
    world = World(40)
    world.until_agreed(30)
    world.round(50)
    world.start("late")
    assert world.until_agreed(12) >= 2


def test_a_quick_restart_is_a_renewal_that_nobody_missed():
    world = World(20)
    world.until_agreed(20)
    world.round(10)
    world.start("p3", incarnation=2)
    world.round(60)
    assert world.agree()
    assert not world.left
    assert {other for _, other in world.renewed} == {"p3"}
    assert {peer for peer, _ in world.renewed} >= set(neighbours("p3", dict.fromkeys(world.peers, True), 4))
    assert all(peer.table.get("p3").incarnation == 2 for peer in world.peers.values())


def test_a_goodbye_spreads_faster_than_silence():
    world = World(40)
    world.until_agreed(30)
    world.round(20)
    leaver = world.peers.pop("p5")
    for other in neighbours("p5", dict.fromkeys(leaver.table.alive(), True), 4):
        world.peers[other].leave("p5", 1)
    world.round(int(2 * DYING) + 8)
    assert world.agree()


def test_a_fifth_of_the_messages_lost_kills_nobody():
    world = World(24, loss=0.2)
    world.until_agreed(40)
    world.round(300)
    assert not world.left
    assert world.agree()


def test_the_pause_of_one_is_seen_by_the_others_and_not_held_against_them():
    world = World(16)
    world.until_agreed(20)
    world.round(10)
    sleeper = world.peers.pop("p4")
    world.round(60)
    assert {other for _, other in world.left} == {"p4"}
    world.peers["p4"] = sleeper
    world.until_agreed(20)
    world.round(60)
    assert {other for _, other in world.left} == {"p4"}
    assert world.agree()


def test_the_older_of_two_doubles_stops_when_they_meet():
    world = World(12)
    world.until_agreed(20)
    older = world.peers.pop("p3")
    world.start("p3", incarnation=2)
    world.peers["p3"].table.me = replace(world.peers["p3"].me, address="elsewhere:1")
    world.round(20)
    for said in world.peers["p5"].view(16, world.rng):
        older.hear(said, direct=False)
    impostor = older.tick(world.now).impostor
    assert impostor is not None
    assert impostor.address == "elsewhere:1"
    older.hear(world.peers["p3"].me, direct=True)  # it called that address
    world.peers["p3"].hear(older.me, direct=True)
    with pytest.raises(SupersededError):
        older.tick(world.now)
    world.round()
