"""Every address gets its turn, whatever else there is to dial, and an address that does not answer is left alone."""

from itertools import pairwise
from random import Random

import pytest

from gadget_svm.peers.membership import discovery
from gadget_svm.peers.membership.discovery import DIALS, DIALS_ALONE, HEARSAY_INTERVAL_S, Discovery
from gadget_svm.peers.membership.failure_detector import FailureDetector
from gadget_svm.peers.membership.member import Member, State


def places(count, host="given"):
    return tuple(f"{host}:{1000 + i}" for i in range(count))


class Network:
    """Peer ``a``, its discovery, and what it dials; the addresses in ``answers`` answer at once."""

    def __init__(self, join=(), seed=0):
        self.detector = FailureDetector(Member("a", "a:1", 1, 1), suspect=5.0, dead=5.0)
        self.discovery = Discovery(tuple(join), "a:1")
        self.now, self.rng = 0.0, Random(seed)
        self.linked, self.chosen = set(), set()
        self.answers, self.dials = {}, []
        self.detector.tick(0.0)

    def hear(self, name, direct=True, state=State.ALIVE, **fields):
        self.detector.hear(Member(name, f"{name}:1", 1, int(self.now) + 1, state, **fields), direct)

    def due(self):
        return self.discovery.due(self.now, self.detector, self.linked, self.chosen, self.rng)

    def run(self, seconds, hang=False):
        """Return the addresses dialled, in order."""
        start = len(self.dials)
        for _ in range(round(2 * seconds)):
            self.now += 0.5
            self.detector.tick(self.now)
            for address, _ in self.due():
                self.dials.append((self.now, address))
                if hang:
                    continue
                if address in self.answers:
                    self.discovery.connected(address, self.answers[address], self.now)
                else:
                    self.discovery.failed(address)
        return [address for _, address in self.dials[start:]]

    def times(self, address):
        return [now for now, dialled in self.dials if dialled == address]


def test_alone_all_seeds_are_dialled_in_the_order_of_the_file_before_any_is_again():
    network = Network(places(40)[::-1])
    assert network.run(1.5)[:40] == list(places(40)[::-1])


def test_only_so_many_dials_are_under_way():
    network = Network(places(40))
    assert len(network.run(20, hang=True)) == DIALS_ALONE
    other = Network(places(40))
    other.linked = {"b"}
    first = other.run(20, hang=True)
    assert len(first) == DIALS
    later = other.run(60, hang=True)  # a dial that was never answered is forgotten at last
    assert later
    assert not set(first) & set(later)


def test_back_off_doubles_up_to_half_a_minute_while_alone():
    network = Network(["seed:1"])
    network.run(300)
    waits = [b - a for a, b in pairwise(network.times("seed:1"))]
    assert waits[0] <= 2
    assert 20 <= max(waits) <= 40
    assert sum(waits) / len(waits) > 10


def test_a_seed_where_nobody_known_is_is_dialled_now_and_then():
    network = Network(["seed:1", "b:1", "alias:1"])
    network.answers = {"alias:1": "b"}
    network.hear("b")
    network.linked = {"b"}
    for _ in range(600):
        network.run(1)
        network.detector.spoke("b", 1)
    assert 15 <= len(network.times("seed:1")) <= 30  # it has never answered: at most every 30 s or so
    assert network.times("b:1") == []  # it is known to be there
    assert len(network.times("alias:1")) == 1  # and here, once it has answered


def test_chosen_neighbours_are_dialled_by_name_unless_linked_or_outbound_only():
    network = Network()
    network.linked = {"b"}
    for name in "bc":
        network.hear(name)
    network.hear("d", reachable=False)
    network.hear("e", direct=False)
    network.chosen = {"a", "b", "c", "d", "e", "unknown"}
    assert sorted(network.due()) == [("c:1", "c"), ("e:1", "e")]


def test_nobody_dials_the_own_address_nor_a_seed_that_is_this_peer():
    network = Network(["a:1", "alias:1"])
    network.answers = {"alias:1": "a"}
    assert network.run(100) == ["alias:1"]


def test_a_suspect_is_dialled_soon_and_the_dead_ever_more_rarely():
    network = Network()
    network.hear("b")
    network.linked = {"z"}
    assert network.run(4) == []
    assert network.run(2) == ["b:1"]
    network.run(3000)
    times = network.times("b:1")
    waits = [b - a for a, b in pairwise(times)]
    assert 200 <= max(waits) <= 380
    assert max(waits[:3]) <= 10


def test_members_of_before_a_restart_are_dialled_and_seeds_first():
    network = Network(places(2))
    network.discovery.remember({f"f{i}": address for i, address in enumerate(places(500, "former"))})
    dialled = network.run(0.5)
    assert len(dialled) == DIALS_ALONE
    assert set(places(2)) <= set(dialled)
    assert set(network.run(60)) | set(dialled) >= {*places(500, "former")}
    network.hear("f3")
    assert not any(address == "former:1003" for address in network.run(4))


@pytest.mark.parametrize("alone", [True, False])
def test_no_crowd_of_one_kind_hides_another(alone):
    network = Network(places(2))
    network.linked = set() if alone else {"z"}
    network.discovery.remember({f"f{i}": address for i, address in enumerate(places(500, "former"))})
    network.hear("chosen")
    network.hear("suspect")
    network.chosen = {"chosen"}
    for i in range(200):
        network.hear(f"x{i}", direct=False)
    called = set(network.run(30))
    assert called >= {*places(2), "chosen:1", "suspect:1"}
    assert {address[:1] for address in called} >= {"g", "f", "c", "s", "x"}


def test_members_known_by_hearsay_are_dialled_one_a_minute():
    network = Network()
    network.linked = {"z"}
    for i in range(300):
        network.hear(f"x{i}", direct=False)
    minutes = 30
    dialled = network.run(minutes * 60.0)
    assert minutes * 60 / HEARSAY_INTERVAL_S - 2 <= len(dialled) <= minutes * 60 / HEARSAY_INTERVAL_S + 1
    assert len(set(dialled)) > minutes / 2


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(discovery, "MAX_ADDRESSES", 20)
    network = Network()
    for i in range(1000):
        network.discovery.connected(f"x:{i}", "x", 0.0)
    assert len(network.discovery._attempts) == 20
