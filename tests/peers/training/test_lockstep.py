"""Learners in lock step have the simulator's weights, bit for bit."""

import numpy as np
import pytest
from sklearn.datasets import make_classification

from gadget_svm.core.rows import Shares
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem, as_csr
from gadget_svm.kernels import ThreadTeam
from gadget_svm.peers.training.learner import Learner, algorithm_of
from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.study.study import Study
from gadget_svm.topologies import build

NODES, ROWS, TICKS, LAM, SEED = 5, 60, 25, 1e-3, 3


def shards(classes):
    X, y = make_classification(
        NODES * ROWS, 24, n_informative=10, n_classes=classes, n_clusters_per_class=1, random_state=0
    )
    X[np.abs(X) < 0.3] = 0.0
    return [(as_csr(X[i::NODES], False), y[i::NODES].astype(np.int32)) for i in range(NODES)]


def simulated(parts, algorithm, topology, outputs):
    """The simulator's block, each node with its rows in the order of its file."""
    X = as_csr(np.concatenate([x.toarray() for x, _ in parts]), True)
    shares = Shares(np.arange(NODES * ROWS), np.arange(0, NODES * ROWS + 1, ROWS), np.empty(0))
    label = np.concatenate([y for _, y in parts])
    problem = Problem(X, label, None, shares, list(range(NODES)), outputs)
    network = algorithm.with_transition_of(build(topology, NODES, seed=SEED))
    run = algorithm.bind(network, LAM, 1 / np.sqrt(LAM), lossy=True, sizes=shares.sizes)
    runtime = LocalRuntime(run, make_blocks(problem, network, SEED, 1, ThreadTeam()))
    runtime.advance(TICKS)
    return runtime.blocks[0]


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
@pytest.mark.parametrize(("topology", "classes"), [("ring", 2), ("random-regular", 2), ("star", 3)])
def test_learners_in_lock_step_have_the_simulators_weights(algorithm, topology, classes):
    parts, study = shards(classes), Study("test", LAM, 24, tuple(map(float, range(classes))), algorithm)
    network = build(topology, NODES, seed=SEED)
    nodes = [Learner(X, y, study, i, seed=SEED, network=network) for i, (X, y) in enumerate(parts)]
    for _ in range(TICKS):
        arriving = [[] for _ in nodes]
        for i, node in enumerate(nodes):
            for message in node.solve():
                arriving[message.other].append(message._replace(other=i, vector=message.vector.copy()))
        for node, messages in zip(nodes, arriving, strict=True):
            node.absorb(messages)
    block = simulated(parts, algorithm_of(study, ROWS), topology, study.outputs)
    for i, node in enumerate(nodes):
        assert np.array_equal(node.block.w[0], block.w[i])
    assert np.abs(block.w).max() > 0
    assert len({node.block.w.tobytes() for node in nodes}) == NODES  # each has its own
