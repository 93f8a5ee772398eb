"""Workers that each hold a block, in threads: bit for bit the simulator, and what becomes of the others' loss."""

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm.algorithms import AveragedSgd, Gadget, MomDsvm, Pdmm, TwoPushSum
from gadget_svm.cluster.row_digests import changed, digests, named
from gadget_svm.cluster.worker import CERTIFY, LEARN, StalledError, Worker, assemble, keeps_mass
from gadget_svm.core.messages import Delivery
from gadget_svm.core.objective import Objective
from gadget_svm.core.rows import Shares
from gadget_svm.data.formats import read_tables
from gadget_svm.estimator.fitting import gathered, make_blocks
from gadget_svm.estimator.problem import Problem, as_csr
from gadget_svm.estimator.remote_shards import Shards, Terms
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels.dual import multiplicity
from gadget_svm.simulation import LocalRuntime
from gadget_svm.topologies import build

N, LAM, ITERATIONS = 7, 0.05, 25
WAYS = {
    "push-sum": Gadget(local_steps=2),
    "push-sum-anew": Gadget(gossip_rounds=3, mass="restarted"),
    "diffusion": Gadget(gossip="diffusion"),
    "pairwise": Gadget(gossip="pairwise"),
    "running-sum": Gadget(gossip="running-sum"),
    "until-still": Gadget(gossip="diffusion", gossip_rounds="diameter", gamma=0.2),
    "averaged-sgd": AveragedSgd(),
    "two-push-sum": TwoPushSum(),
    "mom-dsvm": MomDsvm(),
    "pdmm-one": Pdmm(),
    "pdmm-all": Pdmm(neighbours="all"),
}
STATE = ("w", "s", "phi", "held", "w_sum", "iterates", "steps", "alive")
SHARES = Shares(np.arange(60), np.array([0, 5, 12, 30, 31, 40, 48, 60]), np.empty(0))


class Crew:
    """Some workers in threads, with mail handed over at once; what is posted to the dead is gone."""

    def __init__(self, run, blocks, *, timeout=20.0, lam=LAM):
        self.dead, self.posts = set(), []
        self.bounds = np.array([block.first for block in blocks] + [sum(block.k for block in blocks)])
        self.workers = [
            Worker(i, self.bounds, run, block, self._post(i), lam=lam, timeout=timeout)
            for i, block in enumerate(blocks)
        ]
        self.serial = 0

    def _post(self, source):
        def post(to, key, batch):
            self.posts.append((source, to, key))
            if to not in self.dead and source not in self.dead:
                self.workers[to].receive(source, key, batch)

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
        owner = int(np.argmax(self.live_mask()))
        found = self.each(lambda worker: worker.certify(owner, self.live_mask(), self.serial))
        return assemble(found, self.workers[0].block.w.shape[1:], owner, self.live_mask())

    def lose(self, index):
        self.dead.add(index)
        for worker in self.live:
            worker.forget(index)


def problem_of(toy, multi=False, weighted=False):
    label = (toy.three if multi else toy.y).astype(np.int32)
    times = np.linspace(0.1, 2, 60) if weighted else None
    shares = SHARES if times is None else SHARES._replace(times=times)
    return Problem(sp.csr_matrix(toy.X), label, np.ones(60), times, shares, list(range(N)), 3 if multi else 1)


def network_for(algorithm, topology="ring"):
    return algorithm.with_transition_of(build(topology, N))


def blocks_of(problem, network, parts):
    return make_blocks(problem, network, 3, parts, ThreadTeam())


def both(toy, algorithm, parts, *, topology="ring", iterations=ITERATIONS, **kind):
    """The simulator and a crew, after the same iterations."""
    problem, network = problem_of(toy, **kind), network_for(algorithm, topology)
    run = algorithm.bind(network, LAM, LAM**-0.5, sizes=problem.shares.sizes)
    local = LocalRuntime(run, blocks_of(problem, network, 1), lam=LAM)
    crew = Crew(run, blocks_of(problem, network, parts))
    for count in (1, iterations - 1):
        local.advance(count)
        crew.advance(count)
    return local, crew


def assert_same(local, crew):
    for name in STATE:
        parts = np.concatenate([getattr(worker.block, name) for worker in crew.workers])
        np.testing.assert_array_equal(getattr(local.blocks[0], name), parts, err_msg=name, strict=True)
    assert local.messages == sum(worker.messages for worker in crew.workers) > 0
    assert local.nbytes == sum(worker.nbytes for worker in crew.workers)
    assert all(worker.t == local.t for worker in crew.workers)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("way", sorted(WAYS))
def test_any_number_of_workers_has_the_simulators_state(toy, way, parts):
    assert_same(*both(toy, WAYS[way], parts))


@pytest.mark.parametrize("way", ["push-sum", "pdmm-one", "pdmm-all", "mom-dsvm"])
def test_several_classes(toy, way):
    assert_same(*both(toy, WAYS[way], 3, multi=True))


@pytest.mark.parametrize("way", ["push-sum", "pdmm-all", "averaged-sgd"])
def test_weighted_rows(toy, way):
    assert_same(*both(toy, WAYS[way], 3, weighted=True))


@pytest.mark.parametrize("topology", ["line", "star", "complete", "k-out:3"])
def test_workers_without_an_edge_between_them(toy, topology):
    """On a line the first worker never hears of the last; on a directed graph one may send and never hear."""
    assert_same(*both(toy, Gadget(), 4, topology=topology))
    assert_same(*both(toy, Gadget(gossip="diffusion"), 7, topology=topology))


@pytest.mark.parametrize("multi", [False, True], ids=["binary", "multi-class"])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("way", ["pdmm-one", "pdmm-all", "mom-dsvm"])
def test_certificates_agree(toy, way, parts, multi):
    """Model, bounds and cost; and learning goes on as if there had been none."""
    local, crew = both(toy, WAYS[way], parts, multi=multi, topology="line")
    for _ in range(2):
        one, other = local.certify(), crew.certify()
        np.testing.assert_array_equal(one.model, other.model)
        np.testing.assert_array_equal(one.bounds, other.bounds)
        np.testing.assert_array_equal(one.duals, other.duals)
        for name in ("owner", "n_rows", "n_nodes", "exchanges", "messages", "nbytes", "failure"):
            assert getattr(one, name) == getattr(other, name), name
        assert one.failure == ""
        local.advance(3)
        crew.advance(3)
    for name in STATE:
        parts_ = np.concatenate([getattr(worker.block, name) for worker in crew.workers])
        np.testing.assert_array_equal(getattr(local.blocks[0], name), parts_, err_msg=name)


@pytest.mark.parametrize(("topology", "across"), [("line", 6), ("star", 2), ("ring", 3)])
def test_certificates_go_the_ways_of_learning(toy, topology, across):
    """Not from every worker to every other; that all hold the bound is passed on, and takes a way across at most."""
    _, crew = both(toy, WAYS["pdmm-all"], 7, topology=topology)
    ways = {(source, to) for source, to, (kind, _, _) in crew.posts if kind == LEARN}
    crew.posts.clear()
    certificate = crew.certify()
    assert certificate.failure == ""
    assert {(source, to) for source, to, _ in crew.posts} == ways
    assert len(crew.posts) <= len(ways) * (certificate.exchanges + across)
    crew.advance(1)
    assert all(not worker._inbox for worker in crew.workers)


@pytest.mark.parametrize("way", ["pdmm-all", "mom-dsvm"])
def test_who_is_cut_off_is_named_and_the_cost_is_the_simulators(toy, way):
    """The middle of a line is gone: neither side waits for the other, and both give up."""
    local, crew = both(toy, WAYS[way], 3, topology="line")
    crew.lose(1)
    local.blocks[0].alive[2:4] = False
    local.away_since = dict.fromkeys((2, 3), -1000)
    if way.startswith("pdmm"):
        local.run.drop(local.blocks[0], 1, 2)
        local.run.drop(local.blocks[0], 4, 3)
    one, other = local.certify(), crew.certify()
    assert one.failure == other.failure == "3 nodes, the first of them node 4, are cut off from the others"
    for name in ("owner", "exchanges", "messages", "nbytes"):
        assert getattr(one, name) == getattr(other, name), name


def test_a_loss_ends_a_certificate_for_all(toy):
    """Also for one whom the lost worker's last mail has reached, and who waits for another that gave up before."""
    _, crew = both(toy, WAYS["pdmm-all"], 3, topology="complete")
    here, (first, second, last) = np.ones(N, dtype=bool), crew.workers
    last.post, last.timeout = (lambda to, key, batch: crew._post(2)(to, key, batch) if to == 0 else None), 0.05
    with pytest.raises(StalledError):
        last.certify(0, here, 1)
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(worker.certify, 0, here, 1) for worker in (first, second)]
        while first.whereabouts() != ((CERTIFY, 1, 1), [1, 2]):
            threading.Event().wait(0.01)
        second.forget(2)
        assert found[1].result().failure
        first.forget(2)
        assert found[0].result().failure


def test_losses_add_up_to_the_objective(toy):
    problem, network = problem_of(toy, multi=True, weighted=True), build("ring", N)
    crew = Crew(Gadget().bind(network, LAM, 1.0), blocks_of(problem, network, 3))
    models = np.random.default_rng(0).normal(size=(4, 3, 5))
    pooled: Objective = problem.objective(LAM, ThreadTeam())
    found = crew.each(lambda worker: worker.losses(models))
    total = sum(part[2] for part in found)
    ridge = 0.5 * LAM * np.einsum("mkd,mkd->m", models, models)
    scores = pooled(models)
    np.testing.assert_allclose(sum(part[0] for part in found) / total + ridge, scores.objective, rtol=1e-12)
    np.testing.assert_allclose(sum(part[1] for part in found) / total, scores.error, rtol=1e-12)


def test_losses_copy_no_rows():
    """A million rows on a machine leave no room for a second set at every record."""
    X = sp.random(400, 2000, 0.2, format="csr", random_state=0)
    shares = Shares(np.arange(400), np.array([0, 150, 400]), np.empty(0))
    problem = Problem(X, (np.arange(400) % 2).astype(np.int32), np.ones(400), None, shares, [0, 1], 1)
    network = build("complete", 2)
    worker = Crew(Pdmm().bind(network, LAM, 1.0), blocks_of(problem, network, 1)).workers[0]
    models = np.zeros((1, 1, 2000))
    worker.losses(models)  # compiles
    tracemalloc.start()
    worker.losses(models)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < X.data.nbytes / 5


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_an_actors_shards_are_its_files_one_under_another(tmp_path, count, intercept):
    """As read in one place; features that occur nowhere are found, and left out where the rows are."""
    names = []
    for i in range(count):
        names.append(str(tmp_path / f"{i}.svm"))
        (tmp_path / f"{i}.svm").write_text(f"1 1:{i + 1} 9:2\n-1 {i + 2}:0.5\n" * (i + 1))
    tables = read_tables(names, n_features=12)
    X = as_csr(sp.vstack([X for X, _ in tables]), intercept)
    shards = Shards(names)
    assert [look.rows for look in shards.look()] == [len(y) for _, y in tables]
    used, sizes = shards.settle(Terms(12, True, np.array([-1, 1]), np.array([1.0, 2.0]), intercept))
    np.testing.assert_array_equal(used, X.getnnz(axis=0) > 0)
    rows, y = shards.rows(), np.concatenate([y for _, y in tables])
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(X, name), err_msg=name, strict=True)
    np.testing.assert_array_equal(rows.label, y > 0)
    np.testing.assert_array_equal(multiplicity(rows.mass, rows.start), np.where(y > 0, 2.0, 1.0))
    np.testing.assert_array_equal(sizes, [np.where(y > 0, 2.0, 1.0).sum() for _, y in tables])
    np.testing.assert_array_equal(rows.start, np.cumsum([0, *(len(y) for _, y in tables)]))
    shards.narrow(np.flatnonzero(used))
    np.testing.assert_array_equal(shards.rows().indices, X[:, np.flatnonzero(used)].indices)


@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_restored_worker_goes_on_alike(toy, way):
    """A checkpoint forgets nothing: arrays and counters alone, no scratch."""
    problem, network = problem_of(toy), network_for(WAYS[way])
    run = WAYS[way].bind(network, LAM, LAM**-0.5, sizes=problem.shares.sizes)
    crew, later = (Crew(run, blocks_of(problem, network, 3)) for _ in range(2))
    crew.advance(9)
    for old, new in zip(crew.workers, later.workers, strict=True):
        arrays, counters = old.state()
        new.restore({name: value.copy() for name, value in arrays.items()}, dict(counters))
    crew.advance(6)
    later.advance(6)
    for old, new in zip(crew.workers, later.workers, strict=True):
        for name in STATE:
            np.testing.assert_array_equal(getattr(old.block, name), getattr(new.block, name), err_msg=name)
        assert (old.t, old.messages, old.nbytes) == (new.t, new.messages, new.nbytes)


def optimum(X, label, lam=LAM):
    """A long PDMM of the rows in one place."""
    problem = Problem(
        sp.csr_matrix(X), label.astype(np.int32), np.ones(len(label)), None,
        Shares(np.arange(len(label)), np.array([0, len(label)]), np.empty(0)), [0], 1,
    )  # fmt: skip
    network = build("complete", 1)
    runtime = LocalRuntime(Pdmm().bind(network, lam, 1.0), make_blocks(problem, network, 0, 1, ThreadTeam()), Delivery)
    runtime.advance(3000)
    objective = problem.objective(lam, ThreadTeam())
    return objective, float(objective(runtime.models()).objective[0])


@pytest.mark.parametrize("way", ["pdmm-one", "pdmm-all"])
def test_the_others_end_at_the_optimum_of_their_rows(toy, way):
    """A worker lost in the middle takes its nodes' rows with it; the certificate says so too."""
    _, crew = both(toy, WAYS[way], 3, topology="complete")
    crew.lose(1)  # nodes 2 and 3: rows 12 to 30
    crew.advance(600)
    kept = np.r_[0:12, 31:60]
    objective, best = optimum(toy.X[kept], toy.y[kept])
    models = np.concatenate([worker.values("models") for worker in crew.live])
    assert objective(models).objective.max() <= 1.01 * best
    certificate = crew.certify()
    assert certificate.n_nodes == 5
    assert certificate.n_rows == 41
    assert 0 <= certificate.relative < 0.01


def test_push_sum_keeps_the_mass_it_cannot_send(toy):
    """What the lost worker held, and what was on its way to it, is gone; nothing more is lost later."""
    _, crew = both(toy, Gadget(), 3, topology="complete")
    crew.lose(1)
    crew.advance(1)
    left = sum(worker.block.phi.sum() for worker in crew.live)
    crew.advance(200)
    np.testing.assert_allclose(sum(worker.block.phi.sum() for worker in crew.live), left, rtol=1e-9)
    assert 0 < left < 60


def test_push_sum_keeps_the_mass_it_was_just_sending(toy):
    """One is lost between the look at who is lost and the post."""
    _, crew = both(toy, Gadget(), 3, topology="complete")
    worker = crew.workers[0]
    before, post = worker.block.phi.sum(), worker.post

    def lose(to, key, batch):
        if to == 1:
            worker.forget(1)
        else:
            post(to, key, batch)

    worker.post = lose
    crew.dead.add(1)
    crew.workers[2].forget(1)
    left = before + crew.workers[2].block.phi.sum()
    crew.advance(1)
    np.testing.assert_allclose(sum(each.block.phi.sum() for each in crew.live), left, rtol=1e-9)


def test_who_has_mass_that_can_be_lost():
    """Push-Sum in both forms, while its mass persists; pairwise averaging has none, though phi is set."""
    runs = {way: kind.bind(network_for(kind), LAM, 1.0, sizes=SHARES.sizes) for way, kind in WAYS.items()}
    assert {way for way, run in runs.items() if keeps_mass(run)} == {"push-sum", "diffusion", "averaged-sgd"}


@pytest.mark.parametrize("weighted", [False, True])
def test_digests_are_of_the_nodes_rows_alone(toy, weighted):
    """Whatever the blocks; and each of a value, a label, a weight and the order of rows changes that of its node."""
    problem, network = problem_of(toy, weighted=weighted), build("ring", N)
    whole = digests(problem.rows)
    assert len(set(whole)) == N
    for parts in (3, 7):
        bounds = [N * part // parts for part in range(parts + 1)]
        assert [d for pair in pairwise(bounds) for d in digests(gathered(problem.rows, *pair))] == whole
        assert [d for block in blocks_of(problem, network, parts) for d in digests(block.rows)] == whole
    rows, at = problem.rows, 35  # of node 4
    for name in ("data", "label", "cost", "mass") if weighted else ("data", "label", "cost"):
        values = getattr(rows, name).copy()
        values[rows.indptr[at] if name == "data" else at] += 1
        assert changed(whole, digests(rows._replace(**{name: values}))) == [4]
    order = rows.order.copy()
    order[[at, at + 1]] = order[[at + 1, at]]
    assert changed(whole, digests(rows._replace(order=order))) == [4]
    assert named([4], []) == "node 4"
    assert named(list(range(5)), list("abcdefg")) == "node 0 (a), node 1 (b), node 2 (c) and 2 more"


def test_a_loss_wakes_those_who_wait(toy):
    """One that says nothing is waited for until it is declared lost."""
    problem, network = problem_of(toy), build("ring", N)
    crew = Crew(Pdmm().bind(network, LAM, 1.0), blocks_of(problem, network, 3))
    crew.dead.add(2)
    done = []
    threads = [threading.Thread(target=lambda w=w: (w.advance(3), done.append(w.index))) for w in crew.live]
    for thread in threads:
        thread.start()
    while any(worker.waiting_for() != [2] for worker in crew.live):
        threading.Event().wait(0.01)
    assert not done
    for worker in crew.live:
        worker.forget(2)
    for thread in threads:
        thread.join(20)
    assert sorted(done) == [0, 1]


def test_who_waits_in_vain_says_for_whom(toy):
    problem, network = problem_of(toy), build("ring", N)
    crew = Crew(Gadget().bind(network, LAM, 1.0), blocks_of(problem, network, 2), timeout=0.05)
    with pytest.raises(StalledError, match=r"worker 0 had no mail of \[1\]"):
        crew.workers[0].advance(1)


@pytest.mark.parametrize("state", ["fresh", "checkpoint"])
@pytest.mark.parametrize("away", [0, 2, 40])
@pytest.mark.parametrize("way", ["pdmm-one", "pdmm-all"])
def test_one_that_comes_back_is_part_of_the_optimum_again(toy, way, away, state):
    """Started anew or from a checkpoint, at once or later: the end is the optimum of all rows."""
    algorithm, network = WAYS[way], build("complete", N)
    problem = problem_of(toy)
    run = algorithm.bind(network, LAM, 1.0)
    crew = Crew(run, blocks_of(problem, network, 3))
    crew.advance(10)
    saved = [value.copy() if hasattr(value, "copy") else value for value in crew.workers[1].state()]
    saved[0] = {name: value.copy() for name, value in saved[0].items()}
    crew.advance(10)
    crew.lose(1)
    crew.advance(away)
    back = Worker(1, crew.bounds, run, blocks_of(problem, network, 3)[1], crew._post(1), lam=LAM, timeout=20.0)
    if state == "checkpoint":
        back.restore(*saved)
    back.start_over(crew.workers[0].t, crew.workers[0].block.exchanges)
    crew.workers[1] = back
    crew.dead.clear()
    for i in (0, 2):
        crew.workers[i].welcome(1)
    crew.advance(1500)
    objective, best = optimum(toy.X, toy.y)
    models = np.concatenate([worker.values("models") for worker in crew.workers])
    assert objective(models).objective.max() <= 1.001 * best
    assert crew.certify().relative < 0.001


def test_push_sum_takes_one_back_with_the_mass_of_its_rows(toy):
    _, crew = both(toy, Gadget(), 3, topology="complete")
    crew.lose(1)
    crew.advance(5)
    before = sum(worker.block.phi.sum() for worker in crew.live)
    problem, network = problem_of(toy), network_for(Gadget(), "complete")
    run = crew.workers[0].run
    back = Worker(1, crew.bounds, run, blocks_of(problem, network, 3)[1], crew._post(1), timeout=20.0)
    back.start_over(crew.workers[0].t, crew.workers[0].block.exchanges)
    crew.workers[1] = back
    crew.dead.clear()
    for i in (0, 2):
        crew.workers[i].welcome(1)
    crew.advance(300)
    after = sum(worker.block.phi.sum() for worker in crew.workers)
    np.testing.assert_allclose(after, before + back.block.n.sum(), rtol=1e-9)
    models = np.concatenate([worker.values("w") for worker in crew.workers])
    assert np.abs(models - models.mean(axis=0)).max() < np.abs(models).max()  # they gossip with one another again
