"""What a neighbour that follows the protocol learns of a site's sum, and that a random start hides no difference."""

import numpy as np
import pytest

from gadget_svm import build_network
from gadget_svm.algorithms import Pdmm
from gadget_svm.attacks import cosine, edge_estimate, replay, start_at_random, true_sums
from gadget_svm.core.messages import Delivery
from gadget_svm.data.partition import partition_evenly
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem, as_csr
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.engine import LocalRuntime

LAM, RHO = 1e-2, 5.0


def network_of(topology, exchange=None, **parameters):
    rng = np.random.default_rng(0)
    X = as_csr(rng.normal(size=(120, 8)), False)
    label = (X.toarray()[:, 0] + rng.normal(size=120) > 0).astype(np.int32)
    network = build_network(topology, 4)
    problem = Problem(X, label, None, partition_evenly(X, label, 4, 0), list(range(4)), 1)
    run = Pdmm(**parameters).bind(network, LAM, 1.0)
    return LocalRuntime(run, make_blocks(problem, network, 0, 1, ThreadTeam()), exchange)


def optimum_of(runtime, ticks=3000):
    runtime.advance(ticks)
    return runtime.models()[:, 0]


@pytest.mark.parametrize("topology", ["complete", "ring", "star"])
def test_a_random_start_does_not_change_the_optimum(topology):
    plain, disturbed = network_of(topology), network_of(topology)
    start_at_random(disturbed, 0.1)
    assert np.abs(disturbed.blocks[0].flat).max() > 0
    np.testing.assert_allclose(optimum_of(disturbed), optimum_of(plain), atol=2e-3)


def test_random_starts_are_drawn_by_edge_and_seed():
    one, same, other = (network_of("ring") for _ in range(3))
    for runtime, seed in ((one, 1), (same, 1), (other, 2)):
        start_at_random(runtime, 0.1, seed)
    z, again, different = (runtime.blocks[0].edge["z"] for runtime in (one, same, other))
    np.testing.assert_array_equal(z, again)
    assert np.abs(z - different).max() > 0
    lengths = 0.1 * np.repeat(one.blocks[0].n, 2)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), lengths)


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_the_only_neighbour_of_a_site_learns_its_sum_whatever_the_start(size):
    runtime = network_of("star")
    start_at_random(runtime, size)
    runtime.advance(2000)
    block = runtime.blocks[0]
    truth = true_sums(runtime.run, block)
    hub = int(np.argmax(np.diff(block.links.indptr)))
    leaves = [node for node in range(4) if node != hub]
    assert all(cosine(edge_estimate(block, leaf, hub), truth[leaf]) > 0.999 for leaf in leaves)


def replayed(size, attacker=1):
    batches, truths = [], []

    def recording(messages):
        batches.append(messages._replace(vector=messages.vector.copy()))
        truths.append(true_sums(runtime.run, runtime.blocks[0]))
        return Delivery(messages)

    runtime = network_of("complete", recording, neighbours="all", penalty=RHO, theta=0.6)
    start_at_random(runtime, size)
    runtime.advance(30)
    found = replay(batches, attacker, RHO, runtime.run.theta, runtime.blocks[0].edge["n_lam"])
    others = np.arange(4) != attacker
    return found[:, others], np.array(truths)[:, others]


def test_a_neighbour_of_all_learns_every_sum():
    found, truth = replayed(0.0)
    np.testing.assert_allclose(found, truth, atol=1e-8)


def test_a_random_start_hides_sums_but_not_their_changes():
    found, truth = replayed(10.0)
    assert np.abs(found - truth).max() > 10.0 * np.abs(truth).max()
    apart = np.abs((found[-1] - found[-4]) - (truth[-1] - truth[-4])).max()
    assert apart < 1e-6 * np.abs(truth[-1] - truth[-4]).max()
