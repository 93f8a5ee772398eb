"""Private learners: the simulator's weights in lock step, the noise of the plan, and a site that is behind."""

import numpy as np
import pytest
from sklearn.datasets import make_classification

pytest.importorskip("dp_accounting")

from gadget_svm.core.rows import Shares
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem, as_csr, clip_rows
from gadget_svm.kernels import ThreadTeam
from gadget_svm.peers.training.learner import NodeMessage, algorithm_of
from gadget_svm.peers.training.private_learner import PrivateLearner
from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.study.study import Study
from gadget_svm.topologies import build

NODES, ROWS, SEED, LAM, CLIP, ROUNDS = 4, 60, 3, 1e-2, 1.5, 30
GOSSIP_TICKS = 10
"""After the planned rounds."""


def study_of(classes=2, rounds=ROUNDS):
    labels = tuple(map(float, range(classes)))
    return Study(
        "test", LAM, 12, labels, "private", epsilon=2.0, delta=1e-6, clip=CLIP, rounds=rounds, step_size=1.5
    )  # fmt: skip


def shards(classes=2):
    X, y = make_classification(
        NODES * ROWS, 12, n_informative=6, n_classes=classes, n_clusters_per_class=1, random_state=0
    )
    return [(as_csr(X[i::NODES], False), y[i::NODES].astype(np.int32)) for i in range(NODES)]


def learner(part, study, node, **options):
    return PrivateLearner(*part, study, node, seed=SEED, noise="seeded", **options)


def test_learners_in_lock_step_have_the_simulators_weights():
    parts, study = shards(3), study_of(3)
    nodes = [learner(part, study, i) for i, part in enumerate(parts)]
    for i, node in enumerate(nodes):
        node.set_neighbours({*range(NODES)} - {i})
    arriving = [[] for _ in nodes]
    for tick in range(ROUNDS + GOSSIP_TICKS + 1):
        sent = [[] for _ in nodes]
        for i, node in enumerate(nodes):
            node.absorb(arriving[i])
            for message in node.step(ROUNDS) if tick else node.step(0):
                sent[message.other].append(message._replace(other=i, vector=message.vector.copy()))
        arriving = sent
    for i, node in enumerate(nodes):
        node.absorb(arriving[i])

    X = clip_rows(as_csr(np.concatenate([x.toarray() for x, _ in parts]), True), CLIP)
    shares = Shares(np.arange(NODES * ROWS), np.arange(0, NODES * ROWS + 1, ROWS), np.empty(0))
    problem = Problem(X, np.concatenate([y for _, y in parts]), None, shares, list(range(NODES)), 3)
    network = build("complete", NODES)
    run = algorithm_of(study, ROWS, "seeded").bind(network, LAM, 1.0, lossy=True, sizes=shares.sizes)
    runtime = LocalRuntime(run, make_blocks(problem, network, SEED, 1, ThreadTeam()))
    runtime.advance(ROUNDS + GOSSIP_TICKS)
    for i, node in enumerate(nodes):
        assert node.rounds == node.released == ROUNDS
        assert np.allclose(node.block.w[0], runtime.blocks[0].w[i], rtol=1e-9, atol=1e-12)
    assert np.abs(runtime.blocks[0].w).max() > 0


@pytest.mark.parametrize("noise", ["seeded", "secret"])
def test_the_noise_is_that_of_the_plan(noise):
    study = study_of(rounds=400)
    node = PrivateLearner(*shards()[0], study, 7, seed=SEED, noise=noise)
    alone, multiplier = np.array([True]), node.run.plan(study.dimension).noise_multiplier
    found = []
    for released in range(400):
        node.block.steps[:] = released
        noisy, plain = (node.run.noisy_slopes(node.block, alone, z) for z in (multiplier, 0.0))
        found.append((noisy - plain).ravel())
    wanted = np.sqrt(study.rounds) / study.budget().mu * 2 * CLIP / ROWS
    assert np.std(found) == pytest.approx(wanted, rel=0.05)
    assert len({tuple(each) for each in found}) == 400


def test_rows_are_clipped():
    node = learner(shards()[0], study_of(), 0)
    lengths = np.sqrt(node.X.multiply(node.X).sum(axis=1))
    assert lengths.max() == pytest.approx(CLIP)


def test_no_slope_is_released_beyond_what_is_reserved_or_before_anybody_was_heard():
    node = learner(shards()[0], study_of(), 0)
    node.set_neighbours([1])
    node.absorb([])
    node.step(ROUNDS)
    assert node.released == 0
    node.absorb([message(1, 0)])
    node.step(0)
    assert node.released == 0
    node.step(1)
    node.step(1)
    assert node.released == node.rounds == 1
    node.count_as_done(ROUNDS)
    node.step(ROUNDS)
    assert (node.released, node.rounds) == (1, ROUNDS)


def message(other, seq, size=13, value=0.5):
    return NodeMessage(other, seq, np.full(size, value), 1.0, None)


def test_a_site_that_is_behind_begins_where_its_neighbours_are():
    node = learner(shards()[0], study_of(), 0)
    node.set_neighbours([1, 2])
    node.absorb([])
    [first, _] = node.step(5)
    assert first.seq == 0
    node.absorb([message(1, 40, value=1.0), message(2, 41, value=3.0)])
    assert np.array_equal(node.model(), np.full((1, 13), 2.0))
    assert {each.seq for each in node.step(5)} == {41}
    assert {each.seq for each in node.repeat()} == {41}


def test_a_neighbour_that_cannot_be_so_far_ahead_is_not_plausible():
    node = learner(shards()[0], study_of(), 0)
    assert node.is_plausible(1.0, 10**8)
    assert not node.is_plausible(1.0, 2**61)


def test_only_vectors_of_its_own_round_are_mixed():
    node = learner(shards()[0], study_of(), 0)
    node.set_neighbours([1])
    node.absorb([])
    node.step(0)
    before = node.block.w.copy()
    node.absorb([message(1, 1)])
    assert np.array_equal(node.block.w, before)
    node.absorb([message(1, 0)])
    assert not np.array_equal(node.block.w, before)
    assert node.seq == 0
