"""Workers that each hold a block, in threads: losses, certificates and checkpoints.

That they compute the simulator's bits is shown in tests/simulation/test_runtime_conformance.py.
"""

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm.algorithms import Pdmm
from gadget_svm.cluster.checkpoints import changed_nodes, describe_nodes, row_digests
from gadget_svm.cluster.worker import EXCHANGES_PER_CALL, Worker, certify_together
from gadget_svm.core.messages import Delivery
from gadget_svm.core.rows import Shares
from gadget_svm.estimator.fitting import gathered, make_blocks
from gadget_svm.estimator.problem import Problem
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation import LocalRuntime
from gadget_svm.topologies import build
from support.runtimes import CASES, LAM, N, Setup, setup_of

ITERATIONS = 25
STATE = ("w", "s", "phi", "held", "w_sum", "iterates", "steps", "alive")


class Workers:
    """Some workers in threads, with mail handed over at once; what is posted to the dead is gone."""

    def __init__(self, run, blocks):
        self.dead, self.posts = set(), []
        self.bounds = np.array([block.first for block in blocks] + [sum(block.k for block in blocks)])
        self.workers = [Worker(i, self.bounds, run, block, self._post(i), LAM) for i, block in enumerate(blocks)]
        self.serial = 0

    def _post(self, source):
        def post(to, number, messages):
            self.posts.append((source, to))
            if to not in self.dead and source not in self.dead:
                self.workers[to].receive(source, number, messages)

        return post

    @property
    def live(self):
        return [worker for worker in self.workers if worker.index not in self.dead]

    def each(self, call):
        with ThreadPoolExecutor(len(self.live)) as pool:
            return list(pool.map(call, self.live))

    def advance(self, count):
        self.each(lambda worker: worker.advance(count))

    def live_mask(self):
        return ~np.isin(np.searchsorted(self.bounds, np.arange(self.bounds[-1]), side="right") - 1, list(self.dead))

    def certify(self):
        self.serial += 1
        live, shape = self.live_mask(), self.workers[0].block.w.shape[1:]
        owner = int(np.argmax(live))
        ask = lambda: self.each(lambda worker: worker.certify(owner, live, self.serial))  # noqa: E731
        return certify_together(ask, shape, owner, live)

    def lose(self, index):
        self.dead.add(index)
        for worker in self.live:
            worker.forget(index)


def blocks_of(setup, parts):
    return make_blocks(setup.problem, setup.network, 3, parts, ThreadTeam())


def both(toy, case, parts, *, topology="ring"):
    """The simulator and a group, after the same iterations."""
    setup = setup_of(toy, CASES[case], topology=topology)
    local = LocalRuntime(setup.run, blocks_of(setup, 1), lam=LAM)
    group = Workers(setup.run, blocks_of(setup, parts))
    for count in (1, ITERATIONS - 1):
        local.advance(count)
        group.advance(count)
    return local, group


@pytest.mark.parametrize("topology", ["line", "star", "ring"])
def test_certificates_use_the_edges_of_learning(toy, topology):
    """Not from every worker to every other."""
    _, group = both(toy, "pdmm, all", 7, topology=topology)
    ways = set(group.posts)
    group.posts.clear()
    certificate = group.certify()
    assert certificate.failure == ""
    assert set(group.posts) == ways
    assert len(group.posts) < len(ways) * (certificate.exchanges - 1 + EXCHANGES_PER_CALL)
    group.advance(1)
    assert all(not worker._inbox for worker in group.workers)


@pytest.mark.parametrize("way", ["pdmm, all", "mom-dsvm"])
def test_nodes_that_are_cut_off_are_named(toy, way):
    """The middle of a line is gone: neither side waits for the other, and both give up."""
    local, group = both(toy, way, 3, topology="line")
    group.lose(1)
    local.blocks[0].alive[2:4] = False
    local.away_since = dict.fromkeys((2, 3), -1000)
    if way.startswith("pdmm"):
        local.run.drop(local.blocks[0], 1, 2)
        local.run.drop(local.blocks[0], 4, 3)
    one, other = local.certify(), group.certify()
    assert one.failure == other.failure == "3 nodes, the first of them node 4, are cut off from the others"
    for name in ("owner", "exchanges", "messages", "nbytes"):
        assert getattr(one, name) == getattr(other, name), name


def test_losses_copy_no_rows():
    """A million rows on a machine leave no room for a second set at every record."""
    X = sp.random(400, 2000, 0.2, format="csr", random_state=0)
    shares = Shares(np.arange(400), np.array([0, 150, 400]), np.empty(0))
    problem = Problem(X, (np.arange(400) % 2).astype(np.int32), None, shares, [0, 1], 1)
    network = build("complete", 2)
    worker = Workers(Pdmm().bind(network, LAM, 1.0), blocks_of(Setup(problem, network, None), 1)).workers[0]
    models = np.zeros((1, 1, 2000))
    worker.losses(models)  # compiles
    tracemalloc.start()
    worker.losses(models)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < X.data.nbytes / 5


@pytest.mark.parametrize("way", CASES)
def test_a_restored_worker_continues_alike(toy, way):
    """A checkpoint forgets nothing: arrays and counters alone, no scratch."""
    setup = setup_of(toy, CASES[way])
    group, later = (Workers(setup.run, blocks_of(setup, 3)) for _ in range(2))
    group.advance(9)
    for old, new in zip(group.workers, later.workers, strict=True):
        arrays, counters = old.state()
        new.restore({name: value.copy() for name, value in arrays.items()}, dict(counters))
    group.advance(6)
    later.advance(6)
    for old, new in zip(group.workers, later.workers, strict=True):
        for name in STATE:
            np.testing.assert_array_equal(getattr(old.block, name), getattr(new.block, name), err_msg=name)
        assert old.state()[1] == new.state()[1]


def optimum(X, label, lam=LAM):
    """A long PDMM of the rows in one place."""
    problem = Problem(
        sp.csr_matrix(X), label.astype(np.int32), None,
        Shares(np.arange(len(label)), np.array([0, len(label)]), np.empty(0)), [0], 1,
    )  # fmt: skip
    network = build("complete", 1)
    runtime = LocalRuntime(Pdmm().bind(network, lam, 1.0), make_blocks(problem, network, 0, 1, ThreadTeam()), Delivery)
    runtime.advance(3000)
    objective = problem.objective(lam, ThreadTeam())
    return objective, float(objective(runtime.models()).objective[0])


@pytest.mark.parametrize("way", ["pdmm", "pdmm, all"])
def test_the_others_end_at_the_optimum_of_their_rows(toy, way):
    """A worker lost in the middle takes its nodes' rows with it; the certificate says so too."""
    _, group = both(toy, way, 3, topology="complete")
    group.lose(1)  # nodes 2 and 3: rows 12 to 30
    group.advance(600)
    kept = np.r_[0:12, 31:60]
    objective, best = optimum(toy.X[kept], toy.y[kept])
    models = np.concatenate([worker.runtime.gather("models") for worker in group.live])
    assert objective(models).objective.max() <= 1.01 * best
    certificate = group.certify()
    assert certificate.n_nodes == 5
    assert certificate.n_rows == 41
    assert 0 <= certificate.relative < 0.01


def test_push_sum_keeps_the_mass_it_cannot_send(toy):
    """What the lost worker held, and what was on its way to it, is gone; nothing more is lost later."""
    _, group = both(toy, "gadget", 3, topology="complete")
    group.lose(1)
    group.advance(1)
    left = sum(worker.block.phi.sum() for worker in group.live)
    group.advance(200)
    np.testing.assert_allclose(sum(worker.block.phi.sum() for worker in group.live), left, rtol=1e-9)
    assert 0 < left < 60


def test_push_sum_keeps_the_mass_it_was_just_sending(toy):
    """One is lost between the look at who is lost and the post."""
    _, group = both(toy, "gadget", 3, topology="complete")
    worker = group.workers[0]
    before, post = worker.block.phi.sum(), worker.post

    def lose(to, number, messages):
        if to == 1:
            worker.forget(1)
        else:
            post(to, number, messages)

    worker.post = lose
    group.dead.add(1)
    group.workers[2].forget(1)
    left = before + group.workers[2].block.phi.sum()
    group.advance(1)
    np.testing.assert_allclose(sum(each.block.phi.sum() for each in group.live), left, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_digests_are_of_the_nodes_rows_alone(toy, weighted):
    """Whatever the blocks; and each of a value, a label, a weight and the order of rows changes that of its node."""
    setup = setup_of(toy, CASES["gadget"], "multi" if weighted else "binary")
    problem = setup.problem
    whole = row_digests(problem.rows)
    assert len(set(whole)) == N
    for parts in (3, 7):
        bounds = [N * part // parts for part in range(parts + 1)]
        assert [d for pair in pairwise(bounds) for d in row_digests(gathered(problem.rows, *pair))] == whole
        assert [d for block in blocks_of(setup, parts) for d in row_digests(block.rows)] == whole
    rows, at = problem.rows, 35  # of node 4
    for name in ("data", "label", "cost", "mass") if weighted else ("data", "label", "cost"):
        values = getattr(rows, name).copy()
        values[rows.indptr[at] if name == "data" else at] += 1
        assert changed_nodes(whole, row_digests(rows._replace(**{name: values}))) == [4]
    order = rows.order.copy()
    order[[at, at + 1]] = order[[at + 1, at]]
    assert changed_nodes(whole, row_digests(rows._replace(order=order))) == [4]
    assert describe_nodes([4], []) == "node 4"
    assert describe_nodes(list(range(5)), list("abcdefg")) == "node 0 (a), node 1 (b), node 2 (c) and 2 more"


def test_a_loss_ends_waiting(toy):
    """One that says nothing is waited for until it is declared lost."""
    setup = setup_of(toy, CASES["pdmm"])
    group = Workers(setup.run, blocks_of(setup, 3))
    group.dead.add(2)
    done = []
    threads = [threading.Thread(target=lambda w=w: (w.advance(3), done.append(w.index))) for w in group.live]
    for thread in threads:
        thread.start()
    while any(worker.status()[1] != [2] for worker in group.live):
        threading.Event().wait(0.01)
    assert not done
    for worker in group.live:
        worker.forget(2)
    for thread in threads:
        thread.join(20)
    assert sorted(done) == [0, 1]
