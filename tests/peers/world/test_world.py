"""The simulated world itself: time, links, disks, processes. What nodes make of it is in test_world_seeds.py."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gadget_svm.peers.events import DialFailed, LinkDown, LinkUp, Rejected, Saved, Started, TimerFired
from gadget_svm.peers.storage.snapshot import ModelDocument, Snapshot
from gadget_svm.peers.wire.messages import Hello
from gadget_svm.peers.world.clock import MachineClock
from gadget_svm.peers.world.disk import ChangedWhileWrittenError, Disk
from gadget_svm.peers.world.event_queue import EventQueue
from gadget_svm.peers.world.invariants import InvariantError
from gadget_svm.peers.world.network import CONNECT_TIMEOUT_S, KEEPALIVE_S
from gadget_svm.peers.world.scenario import (
    DataPlan,
    FaultPlan,
    LinkPlan,
    Scenario,
    ScenarioError,
    load,
    names,
    parse,
)  # fmt: skip
from gadget_svm.peers.world.shards import Optima, generate
from gadget_svm.peers.world.simulate import run
from gadget_svm.peers.world.world import World
from support.fake_node import FakeNode

LINKS = LinkPlan(latency=(0.01, 0.02), jitter=0.2)
PLAN = Scenario("test", peers=(2, 2), links=LINKS, faults_stop=1e9, settings={"heartbeat": 1.0}, wire=0.0)


def world_of(seed=0, **changes):
    links = {key: changes.pop(key) for key in list(changes) if key in LinkPlan.__dataclass_fields__}
    return World(replace(PLAN, links=replace(LINKS, **links), **changes), seed, make_node=FakeNode)


def ran(world, seconds):
    world.queue.run(seconds)
    return [machine.node for machine in world.machines.values()]


# Time


def test_calls_come_in_the_order_of_their_times():
    queue, seen = EventQueue(), []
    for when in (3.0, 1.0, 2.0, 1.0):
        queue.at(when, lambda when=when: seen.append((when, queue.now)))
    queue.run(2.5)
    assert seen == [(1.0, 1.0), (1.0, 1.0), (2.0, 2.0)]
    assert queue.now == 2.5


def test_clock_runs_at_its_rate_and_jumps_forward():
    clock = MachineClock(100.0, 2.0)
    assert clock.monotonic(5.0) == 110.0
    assert clock.virtual(110.0) == 5.0
    clock.jump(30.0)
    assert clock.monotonic(5.0) == 140.0


def test_jump_fires_timers_that_are_due():
    world = world_of()
    ran(world, 3.0)
    machine = world.machines["peer-0"]
    before = machine.timer
    machine.jump(50.0)
    ran(world, 3.01)
    assert machine.timer > before + 45


def test_one_seed_is_one_history():
    faults = (FaultPlan("kill", (1.0, 20.0), (0.0, 3.0), (2, 2)), FaultPlan("cut", (1.0, 20.0), (1.0, 9.0)))
    plan = replace(PLAN, peers=(3, 6), links=replace(LINKS, loss=(0.2, 0.2)), faults=faults, faults_stop=30.0, settle=1)
    first, again, other = (run(plan, seed, trace=True, make_node=FakeNode) for seed in (7, 7, 8))
    assert first.trace == again.trace != other.trace
    assert (first.messages, first.nbytes, first.calls) == (again.messages, again.nbytes, again.calls)


# Links


def test_links_greet_and_keep_the_order():
    a, _ = ran(world_of(jitter=3.0), 50.0)
    assert isinstance(a.received()[0], Hello)
    assert a.numbers() == sorted(a.numbers())
    assert len(a.numbers()) > 40


def test_link_numbers_differ_at_both_ends():
    a, b = ran(world_of(), 5.0)
    assert not set(a.links) & set(b.links)
    assert set(a.links.values()) == {"peer-1"}
    assert {event.dialled for _, event in a.events if isinstance(event, LinkUp)} >= {"peer-1:7400"}


def test_loss_has_its_rate_and_links_stay():
    world = world_of()
    ran(world, 3.0)
    world.network.loss = 0.3
    nodes = ran(world, 2000.0)
    traffic = world.network.traffic
    assert 0.25 < traffic.lost / traffic.messages < 0.35
    assert sum(isinstance(event, LinkDown) for _, event in nodes[0].events) < 10


def test_reordering_and_duplicates():
    nodes = ran(world_of(reorder=(0.3, 0.3), duplicate=(0.3, 0.3), latency=(0.5, 0.9)), 300.0)
    numbers = nodes[0].numbers()
    assert len(numbers) > len(set(numbers))
    ran(calm := world_of(reorder=(0.9, 0.9)), 5.0)
    calm.network.calm()
    assert calm.network.reorder == 0


def test_one_way_cut_swallows_and_the_keepalive_closes():
    world = world_of()
    a, b = ran(world, 10.0)
    world.network.cut([("peer-0", "peer-1")])
    ran(world, 10.0 + KEEPALIVE_S - 1)
    assert b.numbers()[-1] <= 10 < a.numbers()[-1]
    ran(world, 11.0 + KEEPALIVE_S)
    for node in (a, b):
        assert any(isinstance(event, LinkDown) and "keepalive" in event.reason for _, event in node.events)
        assert not node.links


def test_cuts_add_up():
    world = world_of()
    for _ in range(2):
        world.network.cut([("peer-0", "peer-1")])
    world.network.heal([("peer-0", "peer-1")])
    assert world.network.is_cut("peer-0", "peer-1")
    world.network.heal([("peer-0", "peer-1")])
    assert not world.network.is_cut("peer-0", "peer-1")


def test_reset_tells_both_ends():
    nodes = ran(world_of(resets=(1.0, 1.0)), 20.0)
    assert all(any(isinstance(event, LinkDown) for _, event in node.events) for node in nodes)


def test_bandwidth_delays_what_is_large():
    slow, fast = (ran(world_of(bandwidth=width, jitter=0.0), 3.0)[0] for width in (3e3, 1e9))
    first = [next(now for now, event in node.events if getattr(event, "message", None)) for node in (slow, fast)]
    assert first[0] - first[1] > 0.3  # a hello has more than 1,200 bytes


@pytest.mark.parametrize(("outbound_only", "seconds"), [((0.5, 0.5), CONNECT_TIMEOUT_S)])
def test_unreachable_address_fails_after_a_timeout(outbound_only, seconds):
    world = world_of(outbound_only=outbound_only)
    closed = next(machine for machine in world.machines.values() if not machine.address)
    caller = next(machine for machine in world.machines.values() if machine.address)
    ran(world, 2.0)
    world.network.dial(caller, f"{closed.name}:7400", None)
    ran(world, 2.0 + seconds - 0.1)
    assert not any(isinstance(event, DialFailed) for _, event in caller.node.events)
    ran(world, 2.0 + seconds + 0.1)
    assert any(isinstance(event, DialFailed) and event.reason == "timed out" for _, event in caller.node.events)


def test_wrong_identity_and_revoked_peers_are_refused():
    world = world_of()
    a, _ = ran(world, 2.0)
    first, second = world.machines.values()
    world.network.dial(first, second.address, "peer-7")
    ran(world, 3.0)
    second.revoked.add("peer-0")
    world.network.sever(second, "peer-0", "certificate revoked")
    world.network.dial(first, second.address, None)
    ran(world, 4.0)
    reasons = [event.reason for _, event in a.events if isinstance(event, DialFailed)]
    assert reasons == ["the other end is peer-1, not peer-7", "certificate revoked"]
    assert not a.links


def test_every_dial_is_answered_once():
    faults = (FaultPlan("cut", (0.0, 30.0), (1.0, 9.0), (3, 3)), FaultPlan("partition", (0.0, 30.0), (1.0, 9.0)))
    for seed in range(20):
        world = world_of(seed, peers=(3, 5), faults=faults, resets=(1.0, 1.0))
        ran(world, 60.0)
        for node in (machine.node for machine in world.machines.values()):
            answers = [e for _, e in node.events if isinstance(e, DialFailed) or getattr(e, "dialled", None)]
            assert len(answers) == len(node.settings.join)


# Disks


def disk_of(seed=0, tear=0.0):
    queue = EventQueue()
    return queue, Disk(queue, random.Random(seed), (0.1, 0.1), tear)


def snapshot_of(number):
    return Snapshot({name: np.full(3, float(number)) for name in ("a", "b")}, {"number": number, "more": [1, 2]})


def test_a_write_is_durable_only_when_it_is_acknowledged():
    queue, disk = disk_of()
    answers = []
    disk.write(1, snapshot_of(1), lambda number, why: answers.append((queue.now, number, why)))
    assert disk.restore() is None
    queue.run(1.0)
    assert answers == [(0.1, 1, "")]
    assert disk.restore().about["number"] == 1


@pytest.mark.parametrize(("tear", "expected"), [(1.0, {1}), (0.0, {1, 2})])
def test_a_kill_loses_what_is_not_synced(tear, expected):
    found = set()
    for seed in range(50):
        queue, disk = disk_of(seed, tear)
        answers = []
        disk.write(1, snapshot_of(1), lambda *_: None)
        queue.run(1.0)
        disk.write(2, snapshot_of(2), lambda *answer, answers=answers: answers.append(answer))
        disk.write(3, snapshot_of(3), lambda *answer, answers=answers: answers.append(answer))
        queue.run(1.05)
        disk.kill()
        queue.run(5.0)
        restored = disk.restore()
        assert not answers
        assert np.array_equal(restored.arrays["b"], snapshot_of(restored.about["number"]).arrays["b"])
        found.add(restored.about["number"])
    assert found == expected


def test_a_full_disk_fails_and_keeps_what_it_has():
    queue, disk = disk_of()
    disk.write(1, snapshot_of(1), lambda *_: None)
    queue.run(1.0)
    disk.full, answers = True, []
    disk.write(2, snapshot_of(2), lambda *answer: answers.append(answer))
    queue.run(2.0)
    assert answers == [(2, "no space left on the device")]
    assert disk.restore().about["number"] == 1


def test_models_of_partitions_have_a_file_of_their_own():
    queue, disk = disk_of()
    for number, kind in enumerate(("certified", "partition")):
        model = ModelDocument(kind, np.zeros((1, 2)), np.ones(1), np.zeros(1), {"kind": kind})
        disk.write(number, model, lambda *_: None)
    queue.run(1.0)
    assert {file: model.kind for file, model in disk.models.items()} == {"model": "certified", "partition": "partition"}


def test_a_snapshot_that_changes_while_it_is_written_is_an_error():
    queue, disk = disk_of()
    snapshot = snapshot_of(1)
    disk.write(1, snapshot, lambda *_: None)
    snapshot.arrays["a"][0] = 9.0
    with pytest.raises(ChangedWhileWrittenError):
        queue.run(1.0)


# Processes


def test_a_killed_process_restarts_from_what_was_synced():
    world = world_of()
    ran(world, 5.0)
    machine = world.machines["peer-0"]
    machine.kill()
    assert not machine.running
    ran(world, 6.0)
    machine.start()
    nodes = ran(world, 12.0)
    assert nodes[0].incarnation == 2
    assert isinstance(nodes[0].events[0][1], Started)
    assert any(isinstance(event, LinkDown) for _, event in nodes[1].events)
    assert nodes[0].links


def test_a_power_cut_is_noticed_by_the_keepalive_only():
    world = world_of()
    ran(world, 5.0)
    world.machines["peer-0"].kill(power_off=True)
    other = ran(world, 5.0 + KEEPALIVE_S - 1)[1]
    assert other.links
    ran(world, 6.0 + KEEPALIVE_S)
    assert not other.links


def test_a_paused_process_hears_everything_later():
    world = world_of()
    node, _ = ran(world, 5.0)
    before = len(node.events)
    world.machines["peer-0"].pause()
    ran(world, 9.0)
    assert len(node.events) == before
    world.machines["peer-0"].resume()
    assert len(node.events) > before + 2


def test_events_of_a_former_life_are_not_delivered():
    world = world_of(latency=(0.5, 0.5))
    ran(world, 5.3)
    world.machines["peer-0"].kill()
    world.machines["peer-0"].start()
    node = ran(world, 5.4)[0]
    assert [type(event).__name__ for _, event in node.events if not isinstance(event, Saved | TimerFired)] == [
        "Started", "CredentialsChanged"
    ]  # fmt: skip


def test_supervisor_restarts_a_process_that_failed():
    world = world_of()
    ran(world, 5.0)
    world._supervise()
    machine = world.machines["peer-0"]
    machine._finish(type("Finish", (), {"reason": "cannot save", "error": "no space"})())
    ran(world, 15.0)
    assert machine.running


# Invariants


class SilentNode(FakeNode):
    """Forgets its timer."""

    def handle(self, event, now):
        return [] if isinstance(event, TimerFired) else super().handle(event, now)


class ForgetfulNode(FakeNode):
    """Starts with the same incarnation each time."""

    def handle(self, event, now):
        if isinstance(event, Started):
            event = replace(event, snapshot=None)
        return super().handle(event, now)


@pytest.mark.parametrize(
    ("node", "words"), [(SilentNode, "waits for nothing"), (ForgetfulNode, "incarnation 1, after 1")]
)
def test_invariants_are_checked(node, words):
    faults = (FaultPlan("kill", (3.0, 5.0), (1.0, 2.0)),)
    result = run(replace(PLAN, faults=faults, faults_stop=30.0), 1, make_node=node)
    assert words in result.failure
    assert "--seed 1 --trace" in result.command


def test_goals_that_are_not_reached_are_named():
    result = run(replace(PLAN, faults_stop=1.0, settle=5.0), 1, make_node=FakeNode)
    assert "5 s after the faults stopped: peer-0 has no model" in result.failure


def test_bounds_below_the_true_gap_are_found():
    world = world_of()
    model = np.zeros(world.study.dimension)
    world.invariants._check_bound("1-a", model, 10.0, ["peer-0"])
    with pytest.raises(InvariantError, match="above the optimum"):
        world.invariants._check_bound("1-a", model, 1e-3, ["peer-0"])


# Data and scenario files


def test_optimum_is_the_least_objective():
    shards = generate(["a", "b"], DataPlan(), 3)
    optima = Optima(shards, 0.05, True)
    d = shards["a"].X.shape[1] + 1
    rng = np.random.default_rng(0)
    least = optima.least(["a", "b"])
    assert 0 < least < optima.objective(np.zeros(d), ["a", "b"]) == 1.0
    best = optima._solve(frozenset("ab"))
    assert all(optima.objective(best + 0.01 * rng.normal(size=d), "ab") >= least - 1e-9 for _ in range(200))


def test_one_class_has_an_optimum_too():
    shards = generate(["a"], DataPlan(), 3)
    shards["a"].label[:] = 1
    assert 0 < Optima(shards, 0.05, True).least(["a"]) < 0.5


def test_packaged_scenarios():
    assert len(names()) >= 12
    for name in names():
        scenario = load(name)
        assert scenario.title
        assert scenario.peers[0] >= 3
        assert scenario.peers[1] <= 12


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("peers = 'many'", "peers = 'many' is neither a number nor a range"),
        ("peers = [5, 3]", "neither a number nor a range"),
        ("colour = 1", "unknown key 'colour'"),
        ("settle = 'long'", "settle = 'long' is not a float"),
        ("[links]\nloose = 1", "unknown key 'loose'"),
        ("[[fault]]\nkind = 'flood'\nat = 1", "no fault is called 'flood'"),
        ("[[fault]]\nkind = 'kill'", "needs a time"),
        ("peers =", "not TOML"),
    ],
)
def test_scenario_errors_name_the_key(text, words):
    with pytest.raises(ScenarioError, match="test"):
        parse("test", text)
    with pytest.raises(ScenarioError) as caught:
        parse("test", text)
    assert words in str(caught.value)


def test_unknown_scenario_names_those_that_exist():
    with pytest.raises(ScenarioError, match="crash-restart"):
        load("nonsense")


def test_rejected_is_told_to_the_receiver_of_a_malformed_message():
    from gadget_svm.peers.world.network import RefusedMessageError

    world = world_of()
    a, _ = ran(world, 3.0)

    def refuse(_message):
        raise RefusedMessageError("no")

    world.network.transcode, world.network.hostile = refuse, frozenset({"peer-0", "peer-1"})
    ran(world, 5.0)
    assert any(isinstance(event, Rejected) for _, event in a.events)
