"""Peers in lock step over real gRPC and mTLS have the simulator's weights, bit for bit."""

import asyncio
import socket
from contextlib import ExitStack

import numpy as np
import pytest
from sklearn.datasets import make_classification

from gadget_svm.core.rows import Shares
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem, as_csr
from gadget_svm.kernels import ThreadTeam
from gadget_svm.peers import certs
from gadget_svm.peers.config import parse, template
from gadget_svm.peers.learner import algorithm_of
from gadget_svm.peers.lockstep import LockstepError, Stepper
from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.topologies import build

NODES, ROWS, TICKS, LAM, SEED = 5, 60, 25, 1e-3, 3


def free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def shards(classes):
    X, y = make_classification(
        NODES * ROWS, 24, n_informative=10, n_classes=classes, n_clusters_per_class=1, random_state=0
    )
    X[np.abs(X) < 0.3] = 0.0
    return [(X[i::NODES], y[i::NODES]) for i in range(NODES)]


def simulated(parts, algorithm, topology, outputs):
    """The simulator, each node with its rows in the order of its file."""
    X = as_csr(np.concatenate([x for x, _ in parts]), True)
    label = np.concatenate([y for _, y in parts]).astype(np.int32)
    shares = Shares(np.arange(NODES * ROWS), np.arange(0, NODES * ROWS + 1, ROWS), np.empty(0))
    problem = Problem(X, label, None, shares, list(range(NODES)), outputs)
    network = algorithm.with_transition_of(build(topology, NODES, seed=SEED))
    run = algorithm.bind(network, LAM, 1 / np.sqrt(LAM), lossy=True, sizes=shares.sizes)
    runtime = LocalRuntime(run, make_blocks(problem, network, SEED, 1, ThreadTeam()))
    runtime.advance(TICKS)
    return runtime.blocks[0]


def steppers(folder, parts, algorithm, topology, **learn):
    certs.init_ca(folder / "ca")
    ports = free_ports(NODES)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    for i, (X, y) in enumerate(parts):
        home = folder / f"node-{i}"
        certs.issue(folder / "ca", f"node-{i}", ["127.0.0.1"], out=home)
        np.savez(home / "rows.npz", X=X, y=y)
        text = template(
            f"node-{i}", address=addresses[i], listen=addresses[i], train="rows.npz", lam=LAM, algorithm=algorithm,
            seed=SEED, node=i, topology=topology, nodes=NODES, ticks=TICKS, addresses=addresses, **learn,
        )  # fmt: skip
        config = parse(text, "peer.toml", home)
        assert config.lockstep is not None
        yield Stepper(config, config.lockstep)


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
@pytest.mark.parametrize(("topology", "classes"), [("ring", 2), ("random-regular", 2), ("star", 3)])
def test_peers_in_lock_step_have_the_simulators_weights_bit_for_bit(tmp_path, algorithm, topology, classes):
    parts = shards(classes)

    async def live():
        nodes = list(steppers(tmp_path, parts, algorithm, topology))
        for node in nodes:  # what is kept back is to the others a message lost, and the simulator keeps nothing back
            node.discretion.allows = lambda *_: True
        await asyncio.gather(*(node.live() for node in nodes))
        return nodes

    nodes = asyncio.run(live())
    block = simulated(parts, algorithm_of(nodes[0].charter, ROWS), topology, nodes[0].charter.outputs)
    for i, node in enumerate(nodes):
        assert np.array_equal(node.learner.block.w[0], block.w[i])
        assert np.array_equal(node.learner.block.w_sum[0], block.w_sum[i])
    assert np.abs(block.w).max() > 0
    assert len({node.learner.block.w.tobytes() for node in nodes}) == NODES  # each has its own


def test_a_node_on_other_terms_stops_the_whole(tmp_path):
    async def live():
        nodes = list(steppers(tmp_path, shards(2), "pdmm", "ring"))
        nodes[2].charter = nodes[2].charter.__class__(**{**vars(nodes[2].charter), "lam": 2 * LAM})
        await asyncio.gather(*(node.live() for node in nodes))

    with pytest.raises(LockstepError, match=r"lam = 0.00.*lam = 0.00"):
        asyncio.run(live())
