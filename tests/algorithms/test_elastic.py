"""One-node blocks on their own clocks, as real peers run them: neighbours come, go and are started anew."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from gadget_svm.algorithms import Gadget, Pdmm
from gadget_svm.algorithms.base import models
from gadget_svm.core.block import Block, Links
from gadget_svm.core.messages import Delivery, MessageBatch
from gadget_svm.core.rows import Objective, Shares
from gadget_svm.estimator.problem import Problem, as_csr
from gadget_svm.kernels import ThreadTeam
from gadget_svm.topologies import build

LAM = 1e-2
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
ALGORITHMS = {
    "pdmm": lambda: Pdmm(),
    "gadget": lambda: Gadget(gossip="running-sum", solver="implicit", local_steps=60),
}


def one_node(node, rows, neighbours):
    problem = Problem(
        as_csr(X[rows], False), y[rows].astype(np.int32), None,
        Shares(np.arange(len(rows)), np.array([0, len(rows)]), np.empty(0)), [node], 1,
    )  # fmt: skip
    block = Block.fresh(
        build("complete", 2), problem.rows, np.array([float(len(rows))]), 1, X.shape[1], first=0, last=1
    )
    block.first, block.links = node, Links.alone(np.array(sorted(neighbours), dtype=np.int32))
    return block


@dataclass
class Town:
    """Peers that tick in random order; letters are lost, late and repeated."""

    name: str
    edges: dict[int, set[int]]
    loss: float = 0.2
    seed: int = 0
    blocks: dict[int, Block] = field(default_factory=dict)
    pending: dict[int, list[MessageBatch]] = field(default_factory=dict)
    clock: dict[int, int] = field(default_factory=dict)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.run = ALGORITHMS[self.name]().bind(build("complete", 3), LAM, 1 / np.sqrt(LAM), lossy=True)
        self.rows = dict(zip(range(10, 16), np.array_split(self.rng.permutation(len(y)), 6), strict=True))
        for node in self.edges:
            self.start(node)

    def start(self, node):
        self.blocks[node], self.pending[node], self.clock[node] = (
            one_node(node, self.rows[node], self.edges[node]), [], 0,
        )  # fmt: skip

    def set_neighbours(self, node):
        self.run.set_neighbours(self.blocks[node], np.array(sorted(self.edges[node]), dtype=np.int64))

    def tick(self, node):
        block, self.clock[node] = self.blocks[node], self.clock[node] + 1
        iteration = self.run.iteration(block, self.clock[node])
        messages = next(iteration)
        for m in range(messages.n_messages):
            to = int(messages.receiver[m])
            for _ in range(self.rng.choice([1, 2], p=[0.9, 0.1])):
                if to in self.blocks and self.rng.random() > self.loss:
                    self.pending[to].append(messages.select(np.array([m])))
        late = self.rng.random(len(self.pending[node])) < 0.2
        now = [letter for letter, is_late in zip(self.pending[node], late, strict=True) if not is_late]
        self.pending[node] = [letter for letter, is_late in zip(self.pending[node], late, strict=True) if is_late]
        empty = messages.select(np.zeros(0, dtype=np.int64))
        with pytest.raises(StopIteration):
            iteration.send(Delivery(MessageBatch.merge(now) if now else empty))

    def go(self, ticks):
        for _ in range(ticks * len(self.blocks)):
            self.tick(int(self.rng.choice(list(self.blocks))))

    def gaps(self, nodes=None):
        nodes = list(self.blocks) if nodes is None else nodes
        rows = np.concatenate([self.rows[node] for node in nodes])
        objective = Objective(
            as_csr(X[rows], False),
            y[rows].astype(np.int32),
            np.ones(len(rows)),
            np.ones(len(rows)),
            LAM,
            1,
            ThreadTeam(),
        )
        best = _optimum(rows)
        return objective(np.stack([models(self.run, self.blocks[node])[0] for node in nodes])).objective / best - 1


def _optimum(rows):
    from gadget_svm.reproduction.baselines.optimum import certified_optimum

    return certified_optimum(as_csr(X[rows], False), np.where(y[rows] == 1, 1.0, -1.0), LAM, 1e-5).objective


def ring(nodes):
    nodes = list(nodes)
    return {a: {nodes[i - 1], nodes[(i + 1) % len(nodes)]} for i, a in enumerate(nodes)}


LIMIT = {"pdmm": (400, 0.01), "gadget": (1500, 0.15)}


@pytest.mark.parametrize("name", ALGORITHMS)
class TestComingAndGoing:
    def test_peers_on_their_own_clocks_reach_the_pooled_optimum(self, name):
        town, (ticks, within) = Town(name, ring(range(10, 16))), LIMIT[name]
        town.go(ticks)
        assert town.gaps().max() < within

    def test_one_that_never_returns_is_left_out(self, name):
        town, (ticks, within) = Town(name, ring(range(10, 16))), LIMIT[name]
        town.go(60)
        del town.blocks[13]
        town.edges = ring([10, 11, 12, 14, 15])
        for node in town.blocks:  # at different times
            town.set_neighbours(node)
            town.go(3)
        town.go(ticks)
        assert town.gaps().max() < within

    def test_one_that_joins_late_is_taken_in(self, name):
        town, (ticks, within) = Town(name, ring([10, 11, 12, 13, 14])), LIMIT[name]
        town.go(60)
        town.edges = ring(range(10, 16))
        town.start(15)
        for node in town.blocks:
            town.set_neighbours(node)
            town.go(2)
        town.go(ticks)
        assert town.gaps().max() < within

    def test_one_that_forgot_everything_comes_back(self, name):
        town, (ticks, within) = Town(name, ring(range(10, 16))), LIMIT[name]
        town.go(60)
        town.start(13)  # at once: nobody missed it
        town.go(2)
        for node in town.edges[13]:
            town.run.reset_edge(town.blocks[node], 13)
        town.go(ticks)
        assert town.gaps().max() < within

    def test_an_edge_dropped_by_one_end_alone_heals_when_it_is_wanted_again(self, name):
        town, (ticks, within) = Town(name, ring(range(10, 16))), LIMIT[name]
        town.go(60)
        town.run.set_neighbours(town.blocks[10], np.array([15]))
        town.go(20)
        town.set_neighbours(10)
        town.go(ticks)
        assert town.gaps().max() < within

    def test_two_halves_that_parted_and_met_again(self, name):
        town, (ticks, within) = Town(name, ring(range(10, 16))), LIMIT[name]
        town.go(40)
        whole, halves = town.edges, [[10, 11, 12], [13, 14, 15]]
        town.edges = {**ring(halves[0]), **ring(halves[1])}
        for node in town.blocks:
            town.set_neighbours(node)
        town.go(ticks)
        assert max(town.gaps(half).max() for half in halves) < within
        town.edges = whole
        for node in town.blocks:
            town.set_neighbours(node)
            town.go(2)
        town.go(ticks)
        assert town.gaps().max() < within


def test_mass_of_running_sums_is_that_of_those_who_are_here():
    town = Town("gadget", ring(range(10, 16)), loss=0.0)
    town.go(60)
    del town.blocks[13]
    town.edges = ring([10, 11, 12, 14, 15])
    for node in town.blocks:
        town.set_neighbours(node)
        town.go(3)
    town.go(40)
    epochs = {int(block.edge["epoch"][0]) for block in town.blocks.values()}
    assert len(epochs) == 1
    own = sum(block.phi[0] for block in town.blocks.values())
    sent = sum(block.edge["sigma_phi"].sum() for block in town.blocks.values())
    seen = sum(block.edge["seen_phi"].sum() for block in town.blocks.values())
    assert own + sent - seen == pytest.approx(sum(block.n[0] for block in town.blocks.values()), rel=1e-12)


def test_former_neighbours_are_forgotten_in_the_end():
    town = Town("pdmm", {10: {11}, 11: {10}})
    town.go(5)
    for other in range(100, 130):
        town.run.set_neighbours(town.blocks[10], np.array([11, other]))
    block = town.blocks[10]
    assert len(block.links.target) < 12
    assert set(block.links.target[block.edge["open"]].tolist()) == {11, 129}
    assert len(block.edge["z"]) == len(block.links.target)
