"""Peers that are certified and at rest: nothing happens, and nobody is taken for dead."""

import re

import pytest

from gadget_svm.peers.world.simulate import network_plan
from gadget_svm.peers.world.world import World, node_factory

SECONDS = 150.0


@pytest.mark.parametrize("peers", [5, 12])
def test_peers_at_rest_stay_alive_for_all_others(peers):
    """Also for peers that are not their neighbours, though heartbeats are rarer and shorter at rest."""
    plan = network_plan(peers, latency="lan", rows=40, features=5, suspect=5.0, dead=5.0)
    lines = []
    world = World(plan, 0, make_node=node_factory(), say=lambda name, text: lines.append((world.queue.now, name, text)))
    world.goals.check = lambda: False  # go on after everything is reached
    world.queue.run(SECONDS)
    nodes = [machine.node for machine in world.machines.values()]
    assert [line for line in lines if re.search(r"'left': \[[^\]]", line[2])] == []
    assert all(node.at_rest for node in nodes)
    ticks = [node.session.ticks for node in nodes]
    world.queue.run(SECONDS + 30.0)
    assert [node.session.ticks for node in nodes] == ticks
