"""The runtimes of the conformance suite, by name, and small runs for them.

A new runtime joins with a line in `RUNTIMES`. Each entry takes a `Setup` and returns a runtime at iteration 0 with the
nodes of the setup.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from gadget_svm.algorithms import ALGORITHMS, Gadget, Pdmm
from gadget_svm.cluster.actor import Given
from gadget_svm.cluster.connection import Cluster
from gadget_svm.cluster.driver import RayRuntime
from gadget_svm.cluster.options import RayOptions
from gadget_svm.core.messages import Delivery
from gadget_svm.core.network import Network
from gadget_svm.core.rows import Shares
from gadget_svm.estimator.fitting import gathered, make_blocks
from gadget_svm.estimator.problem import Problem
from gadget_svm.gossip import PROTOCOLS
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation import LocalRuntime
from gadget_svm.topologies import build
from support.threaded_actors import Place, Threads

N, LAM, SEED = 7, 0.05, 3
SHARES = Shares(np.arange(60), np.array([0, 5, 12, 30, 31, 40, 48, 60]), np.empty(0))

CASES = {
    **{name: make() for name, make in ALGORITHMS.items()},
    **{f"gadget, {name}": Gadget(gossip=name) for name in PROTOCOLS if name != "push-sum"},
    "gadget, 3 rounds": Gadget(gossip_rounds=3, local_steps=2, batch_size=2),
    "gadget, mix": Gadget(gossip_rounds="mix"),
    "gadget, robust": Gadget(robust="clip", liars=0),
    "gadget, restarted": Gadget(gossip_rounds=3, mass="restarted"),
    "gadget, until still": Gadget(gossip="diffusion", gossip_rounds="diameter", gamma=0.2),
    "pdmm, all": Pdmm(neighbours="all"),
}
"""Every algorithm of the registry, Gadget with every gossip protocol, and the variants that send differently."""


class Setup(NamedTuple):
    """An algorithm on rows and a network."""

    problem: Problem
    network: Network
    run: object


def problem_of(toy, kind="binary"):
    """The toy rows on seven nodes: "binary", or "multi" for three classes with weighted rows."""
    multi = kind == "multi"
    label = (toy.three if multi else toy.y).astype(np.int32)
    times = np.linspace(0.1, 2, 60) if multi else None
    shares = SHARES if times is None else SHARES._replace(times=times)
    return Problem(sp.csr_matrix(toy.X), label, times, shares, list(range(N)), 3 if multi else 1)


def setup_of(toy, algorithm, kind="binary", topology="ring"):
    problem, network = problem_of(toy, kind), build(topology, N)
    chosen = algorithm.for_network(network)
    network = chosen.with_transition_of(network)
    return Setup(problem, network, chosen.bind(network, LAM, LAM**-0.5, False, problem.shares.sizes))


def simulated(parts=1, exchange=None, team=None):
    """The simulator, with so many blocks."""

    def make(setup):
        blocks = make_blocks(setup.problem, setup.network, SEED, parts, team or ThreadTeam())
        return LocalRuntime(setup.run, blocks, exchange, lam=LAM)

    return make


def in_actors(parts, cluster):
    """The cluster's runtime, with so many actors."""

    def make(setup):
        problem, place = setup.problem, cluster(RayOptions(actors=parts))
        runtime = RayRuntime(place, N, lambda *pair: Given(gathered(problem.rows, *pair)))
        shape = problem.n_outputs, problem.X.shape[1]
        runtime.begin(setup.run, setup.network, SEED, problem.shares.sizes, shape, LAM)
        return runtime

    return make


def threads(options):
    """A cluster whose actors are threads of this process."""
    return Place(options, Threads())


REFERENCE = simulated()
RUNTIMES = {
    "by messages": simulated(exchange=Delivery),
    "two threads": simulated(team=ThreadTeam(2, worth_sharing=0)),
    "three blocks": simulated(3),
    "a block per node": simulated(N),
    "one actor": in_actors(1, threads),
    "three actors": in_actors(3, threads),
    "an actor per node": in_actors(N, threads),
}
REAL_RAY = in_actors(2, Cluster)
