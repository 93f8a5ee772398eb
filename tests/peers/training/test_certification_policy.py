"""When an attempt begins, what counts, and when a site may exit; and that all sites that exit have one model."""

import math
from dataclasses import replace
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.algorithms.certificate import sums_length
from gadget_svm.peers.membership.member import Member
from gadget_svm.peers.training.certificate_echo import CertificateEcho, ComputeSums, Tell, label
from gadget_svm.peers.training.certification_policy import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    READY_PARTITION_S,
    READY_S,
    TURN_S,
    CertificationPolicy,
)
from gadget_svm.peers.wire.messages import CertificateId, Certified, CoveredSite
from gadget_svm.study.study import Study

LAM, K, F = 0.1, 1, 3


def certificate(number=1, names="abc", bound=0.005, initiator="a", time=5.0):
    sites = tuple(CoveredSite(name, 1, 10.0) for name in names)
    return Certified(
        CertificateId(number, initiator, 1), time, b"s", np.arange(3.0), np.array([bound]), np.array([1.0]), sites, 9
    )


def study(**options):
    return Study(name="s", lam=LAM, n_features=2, classes=(-1.0, 1.0), **options)


def members(names="abc", certified="", rows=10.0):
    return {name: Member(name, f"{name}:1", 1, 1, rows=rows, certified=certified) for name in names}


@pytest.fixture
def policy():
    return CertificationPolicy(study(sites=("a", "b", "c")), "a")


def test_higher_numbers_win_the_first_of_a_number_stays_and_a_partition_is_kept_apart(policy):
    first = certificate(3)
    assert policy.adopt(first, 0.0)
    assert not policy.adopt(certificate(3, initiator="b"), 0.0)
    assert not policy.adopt(certificate(2), 0.0)
    assert not policy.adopt(certificate(9, bound=0.02), 0.0)
    assert not policy.adopt(certificate(9, bound=np.nan), 0.0)
    assert not policy.covers(certificate(names="ab"))
    assert policy.adopt(certificate(8, names="ab"), 0.0)
    assert policy.latest is first
    assert policy.partition.id.number == 8
    assert policy.adopt(certificate(4, names="abcd"), 0.0)
    assert policy.latest.id.number == 4


def test_without_names_the_number_of_sites_counts():
    policy = CertificationPolicy(study(min_sites=2), "a")
    assert not policy.covers(certificate(names="a"))
    assert policy.covers(certificate(names="xy"))


def when(policy, gap=0.007, table=None, start=0.0):
    """Return after how many seconds an attempt begins."""
    for now in range(200):
        if policy.should_begin(start + now, gap, table or members()):
            return now
    return None


def test_an_attempt_begins_when_the_gap_was_small_for_a_while():
    def new(me="a"):
        return CertificationPolicy(study(sites=("a", "b", "c")), me)

    assert when(new()) == READY_S
    assert when(new("c")) == READY_S + 2 * TURN_S
    assert when(new(), table=members("ab")) == READY_PARTITION_S
    assert when(new("d"), table=members("abcd")) is None  # only the sites of the study begin
    assert when(new(), gap=0.009) is None
    assert when(new(), gap=float("nan")) is None
    policy = new()
    assert not policy.should_begin(0.0, 0.007, members())
    assert not policy.should_begin(1.9, 0.02, members())
    assert not policy.should_begin(2.5, 0.007, members())


def test_after_failures_the_next_attempt_waits_twice_as_long(policy):
    assert when(policy) == READY_S
    now, waits = READY_S, []
    for _ in range(5):
        policy.failed(now)
        waits.append(when(policy, start=now))
        now += waits[-1]
    assert waits == [min(FIRST_WAIT_S * 2**i, LONGEST_WAIT_S) for i in range(5)]


def test_what_is_certified_is_not_certified_again_until_rows_or_sites_change(policy):
    policy.adopt(certificate(), 0.0)
    assert policy.at_rest(members())
    assert when(policy) is None
    assert not policy.at_rest(members(rows=11.0))
    assert when(policy, table=members(rows=11.0)) is not None
    assert not policy.at_rest(members("abcd"))
    policy.adopt(certificate(2, names="ab"), 0.0)
    assert policy.at_rest(members("ab"))  # the partition has its certificate
    assert when(policy, table=members("ab")) is None


def test_a_site_exits_when_all_have_confirmed_or_after_a_while(policy):
    mine = certificate()
    policy.adopt(mine, 100.0)
    table = members(certified=label(mine))
    late = list((table | members("c")).values())
    assert policy.confirmed_by(late) == {"a", "b"}
    assert policy.unconfirmed(late) == ["c"]
    assert policy.waits_until(late, 60.0) == 160.0
    assert policy.waits_until([table["c"]], 60.0) == -math.inf  # the others' confirmations stay known
    assert policy.unconfirmed([]) == []


def test_another_site_may_say_that_all_have_confirmed(policy):
    policy.all_confirmed()  # of no certificate
    policy.adopt(certificate(), 100.0)
    assert policy.unconfirmed([]) == ["b", "c"]
    policy.all_confirmed()
    assert policy.waits_until([], 60.0) == -math.inf
    policy.adopt(certificate(2), 110.0)
    assert policy.waits_until([], 60.0) == 170.0


def test_another_certificate_in_sight_delays_the_exit_and_is_a_reason_to_begin_again(policy):
    mine = certificate()
    policy.adopt(mine, 0.0)
    table = members(certified=label(mine))
    policy.confirmed_by(table.values())
    table["b"] = replace(table["b"], certified=label(certificate(initiator="b")))
    assert policy.waits_until(table.values(), 60.0) == 120.0
    policy.all_confirmed()
    assert policy.waits_until(table.values(), 60.0) == 120.0
    assert policy.conflict
    assert when(policy, table=table) is not None
    assert policy.adopt(certificate(2), 130.0)
    assert not policy.conflict


# Exits


class Peer:
    """A peer that runs until certified. ``saved`` survives a crash; ``eager`` passes a certificate on before that."""

    def __init__(self, name, names, incarnation=1, saved=None, eager=False):
        self.name, self.incarnation, self.saved, self.eager = name, incarnation, saved, eager
        self.echo = CertificateEcho(name, LAM, K, F)
        self.policy = CertificationPolicy(study(sites=tuple(names)), name)
        self.exited = None
        if saved is not None:
            self.adopt(saved, 0.0)

    def adopt(self, certified, now):
        if self.policy.adopt(certified, now):
            self.echo.adopted(certified.id.number)
            return True
        return False

    @property
    def latest(self):
        return self.policy.latest

    @property
    def member(self):
        return Member(self.name, "", self.incarnation, 1, certified=label(self.saved) if self.saved else "", rows=10.0)


class Sites:
    """All sites, any of which may begin an attempt at any time; messages are lost, late, and out of order."""

    def __init__(self, n, rng, loss, eager, latest=2.0):
        self.names = [f"p{i}" for i in range(n)]
        self.rng, self.loss, self.eager, self.now, self.order = rng, loss, eager, 0.0, 0
        self.latest = latest  # when a certificate arrives, at the latest
        self.peers = {name: Peer(name, self.names, eager=eager) for name in self.names}
        self.lines = {peer.name: peer.member for peer in self.peers.values()}  # as others have heard of them last
        self.graph = nx.cycle_graph(n) if n > 2 else nx.path_graph(n)
        self.queue = []
        self.labels = set()  # of all models that were ever on a disk

    def neighbours(self, name):
        return {f"p{i}" for i in self.graph[int(name[1:])]}

    def send(self, source, target, message):
        if self.rng.random() >= self.loss:
            delay = self.latest if isinstance(message, Certified) else 2.0
            self.put(delay * self.rng.random(), target, ("message", source, message))

    def put(self, delay, name, what):
        """A message reaches whoever runs then; what a peer does itself ends with its incarnation."""
        self.order += 1
        incarnation = None if what[0] == "message" else self.peers[name].incarnation
        self.queue.append((self.now + delay, self.order, name, incarnation, what))

    def do(self, peer, actions):
        for action in actions:
            if isinstance(action, Tell):
                self.send(peer.name, action.name, action.message)
            elif isinstance(action, ComputeSums):
                sums = np.zeros(sums_length(K, F))
                sums[F], sums[F + 1] = 5.01 - LAM / 2 * 10.0 * (action.model**2).sum(), 5.0
                sums[-3:] = 10.0, 20.0, 1.0
                self.put(self.rng.random(), peer.name, ("sums", action.id, sums))
            elif isinstance(action, Certified):
                self.adopt(peer, action)

    def adopt(self, peer, certified):
        if peer.adopt(certified, self.now) and peer.latest is certified:
            self.put(3 * self.rng.random(), peer.name, ("saved", certified))
            if self.eager:
                self.pass_on(peer, certified)

    def pass_on(self, peer, certified):
        for name in self.neighbours(peer.name):
            self.send(peer.name, name, certified)

    def deliver(self, name, what):
        peer = self.peers[name]
        if what[0] == "saved":
            peer.saved = what[1]
            self.labels.add(label(peer.saved))
        elif what[0] == "sums":
            self.do(peer, peer.echo.sums_ready(what[1], what[2], self.now))
        elif isinstance(what[2], Certified):
            self.adopt(peer, what[2])
        elif peer.latest is None:
            message, near = what[2], self.neighbours(name)
            self.do(peer, peer.echo.receive(what[1], message, self.now, near, peer.incarnation, 10.0))

    def tick(self, begin, crash):
        for peer in list(self.peers.values()):
            if peer.exited is not None:
                continue
            if self.rng.random() < crash:
                self.peers[peer.name] = Peer(peer.name, self.names, peer.incarnation + 1, peer.saved, eager=self.eager)
                continue
            near = self.neighbours(peer.name)
            self.do(peer, peer.echo.tick(self.now, near))
            if peer.latest is None and self.rng.random() < begin:
                model = np.array([self.rng.random(), 0.0, 0.0])
                actions = peer.echo.begin(self.now, self.now, peer.incarnation, 10.0, model, b"s", near, 1)
                self.do(peer, actions)
            if self.rng.random() >= self.loss:
                self.lines[peer.name] = peer.member
            if peer.saved is not None:
                self.pass_on(peer, peer.saved)
                if peer.saved is peer.latest and peer.policy.waits_until(self.lines.values(), 5.0) <= self.now:
                    peer.exited = label(peer.saved)

    def run(self, seconds, begin, crash=0.0):
        end = self.now + seconds
        while self.now < end:
            second = self.now + 1.0
            due = sorted((item for item in self.queue if item[0] < second), key=lambda item: item[:2])
            self.queue = [item for item in self.queue if item[0] >= second]
            for at, _, name, incarnation, what in due:
                self.now = at
                if incarnation in (None, self.peers[name].incarnation) and self.peers[name].exited is None:
                    self.deliver(name, what)
            self.now = second
            self.tick(begin, crash)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.5]), st.sampled_from([0.0, 0.02, 0.1]),
    st.sampled_from([2.0, 90.0]),
)  # fmt: skip
def test_all_sites_save_one_model_whatever_is_lost_and_whoever_crashes(n, seed, loss, crash, latest):
    sites = Sites(n, Random(seed), loss, False, latest)
    sites.run(150, begin=0.1, crash=crash)
    assert len(sites.labels) <= 1
    assert {peer.exited for peer in sites.peers.values() if peer.exited} <= sites.labels


def test_without_faults_all_exit_with_a_model():
    for seed in range(20):
        sites = Sites(4, Random(seed), 0.0, eager=False)
        sites.run(200, begin=0.02)
        assert all(peer.exited for peer in sites.peers.values())


def test_a_certificate_that_is_passed_on_before_it_is_saved_is_found_by_this_test():
    for seed in range(500):
        sites = Sites(3, Random(seed), 0.0, True, 90.0)
        sites.run(200, begin=0.1, crash=0.1)
        if len(sites.labels) > 1:
            return
    raise AssertionError("not found")
