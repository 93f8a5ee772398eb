"""Peers that run until certified: nobody waits for confirmations that no other peer can bring any more."""

from dataclasses import replace

import pytest

from gadget_svm.peers.world.scenario import load
from gadget_svm.peers.world.simulate import network_plan, run
from gadget_svm.peers.world.world import World, node_factory

LINGER_S = 1_000.0


@pytest.mark.parametrize("seed", range(5))
def test_the_leaves_of_a_star_end_soon_after_the_site_in_the_middle(seed):
    """One site accepts connections: the others hear of each other by it only, and it may end first."""
    plan = replace(
        load("finish"), peers=(5, 5), outbound_only=(1.0, 1.0), settings={"linger": LINGER_S}, settle=LINGER_S / 2
    )
    result = run(plan, seed)
    assert result.ok, f"{result.failure}\n{result.command}"


def test_status_and_log_say_whom_a_certified_peer_waits_for():
    plan = replace(load("finish"), peers=(3, 3), settings={"linger": 20.0}, settle=1e9)
    lines = []
    world = World(plan, 0, make_node=node_factory(), say=lambda name, text: lines.append((name, text)))
    machines = world.machines
    while all(
        machine.node is None or machine.node.certification.policy.latest is None for machine in machines.values()
    ):
        world.queue.run(world.queue.now + 0.01)
    absent = next(machine for machine in machines.values() if machine.node.certification.policy.latest is None)
    absent.kill()
    others = [machine for machine in machines.values() if machine is not absent]
    world.queue.run(world.queue.now + 10.0)
    for machine in others:
        status = machine.node.status(machine.now)
        assert status["wait"]["sites"] == [absent.name]
        assert 0.0 < status["wait"]["seconds"] < 20.0
        assert f"s more for {absent.name} to confirm" in status["why"][-1]
    world.queue.run(world.queue.now + 30.0)
    for machine in others:
        told = [text for name, text in lines if name == machine.name]
        assert sum("info: waiting until the others have the model" in text for text in told) == 1
        assert sum("warning: sites did not confirm in time" in text and absent.name in text for text in told) == 1
        assert machine.finish.reason == "certified"


def test_status_has_the_later_model_of_a_part_of_the_sites_beside_the_certified_one():
    world = World(network_plan(3, latency="lan", rows=40, features=5), 0, make_node=node_factory())
    world.queue.run(60.0)
    first, second, gone = world.machines.values()
    everyone = [first.name, second.name, gone.name]
    status = first.node.status(first.now)
    assert (status["certified"]["sites"], status["partition"]) == (everyone, None)
    gone.kill()
    world.queue.run(180.0)
    status = first.node.status(first.now)
    assert (status["certified"]["sites"], status["partition"]["sites"]) == (everyone, everyone[:2])
    assert status["partition"]["bound"] <= world.study.gap
