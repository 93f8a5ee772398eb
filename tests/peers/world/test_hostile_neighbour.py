"""A hostile peer that is accepted, and pushes with penalties that no rows propose."""

import pytest

from gadget_svm.peers.world.scenario import load
from gadget_svm.peers.world.world import World, node_factory, run_world

pytest.importorskip("google.protobuf")


@pytest.mark.parametrize("seed", range(6))
def test_all_others_learn_certify_and_name_it(seed):
    world = World(load("hostile-neighbour"), seed, make_node=node_factory())
    assert run_world(world) == ""
    [hostile] = world.hostile_neighbours
    for name in world.roles.names:
        node = world.machines[name].node
        status = node.status(world.machines[name].now)
        assert status["refused"]["implausible"] >= 1
        assert f"{hostile} pushes with the weight 1e" in status["issues"]["neighbours"]
        assert hostile not in node.edges.counted(world.machines[name].now)
        assert hostile not in status["certified"]["sites"]


def test_it_gets_an_edge_again_after_it_has_restarted():
    world = World(load("hostile-neighbour"), 0, make_node=node_factory())
    assert run_world(world) == ""
    [hostile] = world.hostile_neighbours
    node = world.machines["peer-0"].node
    assert hostile in node.edges.refused
    node.neighbourhood.detector.spoke(hostile, 10**9 + 1)
    node.neighbourhood.beat(world.machines["peer-0"].now)
    assert not node.edges.refused
    assert "neighbours" not in node.issues.open
