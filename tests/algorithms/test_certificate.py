"""The certificate without a server: never below the true gap, the same at every node, and honest when it fails."""

from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from gadget_svm import Gadget, GadgetSVC, load_model, save_model
from gadget_svm.algorithms import MomDsvm, Pdmm, edge_liveness
from gadget_svm.algorithms.certificate import MAX_IDLE_EXCHANGES, Certificate
from gadget_svm.core.messages import HEADER_BYTES, Delivery, MessageBatch
from gadget_svm.core.rows import Shares
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem
from gadget_svm.faults import Churn, Crash, Delay, FaultContext, Loss, Partition, make_faults, wrap_all
from gadget_svm.kernels import ThreadTeam
from gadget_svm.report.formatting import at_most
from gadget_svm.simulation import LocalRuntime, engine
from gadget_svm.simulation.engine import REJOIN_GRACE_ITERATIONS, Channel
from gadget_svm.simulation.stopping import GapBelow
from gadget_svm.topologies import build
from support.strategies import networks

LAM = 0.02
ALGORITHMS = [Pdmm(), Pdmm(neighbours="all"), MomDsvm()]


def make_problem(seed=0, n_rows=60, n_features=4, n_classes=2, n_nodes=6, weighted=False):
    """Rows that no plane separates, dealt out unevenly; some nodes may have none."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)) * np.linspace(0.3, 2, n_features)
    label = np.argmax(X @ rng.normal(size=(n_features, n_classes)) + rng.normal(size=(n_rows, n_classes)), axis=1)
    site = np.sort(np.minimum(rng.geometric(min(1, 2 / n_nodes), n_rows) - 1, n_nodes - 1))
    times = np.round(rng.uniform(0.2, 3, n_rows), 2) * np.where(label == 1, 2.5, 0.5) if weighted else None
    parts = np.empty(0) if times is None else times
    shares = Shares(np.arange(n_rows), np.searchsorted(site, np.arange(n_nodes + 1)), parts)
    outputs = 1 if n_classes == 2 else n_classes
    return Problem(
        sp.csr_matrix(X), label.astype(np.int32), times, shares, list(range(n_nodes)), outputs
    )  # fmt: skip


def make_runtime(problem, algorithm=None, network=None, exchange=None, parts=1, lam=LAM, n_jobs=1, seed=3):
    network = build("ring", len(problem.sites), seed=1) if network is None else network
    run = (algorithm or Pdmm()).bind(network, lam, 1.0, False, problem.shares.sizes)
    team = ThreadTeam(n_jobs, worth_sharing=0 if n_jobs > 1 else 10**9)
    return LocalRuntime(run, make_blocks(problem, network, seed, parts, team), exchange, lam=lam)


def without(problem, nodes):
    """The rows of all nodes but some, as a problem, and which rows they are."""
    start = problem.shares.start
    kept = np.concatenate([np.arange(a, b) for i, (a, b) in enumerate(pairwise(start)) if i not in nodes])
    times = None if problem.times is None else problem.times[kept]
    rows = SimpleNamespace(order=kept)
    return Problem(problem.X[kept], problem.label[kept], times, rows, [], problem.n_outputs), kept


def value(problem, model, lam=LAM):
    return float(problem.objective(lam, ThreadTeam())(model[None]).objective[0])


def optimum(problem, lam=LAM):
    """The least objective LIBLINEAR finds, so F* or a little more."""
    times = np.ones(len(problem.label)) if problem.times is None else problem.times
    solver = LinearSVC(loss="hinge", C=1 / (lam * times.sum()), fit_intercept=False, tol=1e-7, max_iter=200_000)
    outputs = []
    for target in [1] if problem.n_outputs == 1 else range(problem.n_outputs):
        own = problem.label == target
        if own.all() or not own.any():  # LIBLINEAR refuses; the zero model is never better than the optimum
            return None
        outputs.append(solver.fit(problem.X, own, sample_weight=times).coef_[0])
    return value(problem, np.array(outputs), lam)


def primal_and_dual(problem, runtime, model, lam=LAM, rows=None):
    """P of the model and D of all alpha, summed over the outputs, in plain numpy."""
    alpha = np.concatenate([runtime.run.duals(block) for block in runtime.blocks], axis=1)
    rows = np.arange(len(problem.label)) if rows is None else rows
    times = np.ones(len(problem.label)) if problem.times is None else problem.times
    N, P, D = times[rows].sum(), 0.0, 0.0
    for c in range(problem.n_outputs):
        y = np.where(problem.label == (1 if problem.n_outputs == 1 else c), 1.0, -1.0)[rows]
        X, a = problem.X.toarray()[rows], alpha[c][rows]
        assert (a >= 0).all()
        assert (a <= times[rows] * (1 + 1e-12)).all()
        hinge = times[rows] @ np.maximum(0, 1 - y * (X @ model[c]))
        P += lam / 2 * model[c] @ model[c] + hinge / N
        D += a.sum() / N - np.sum(((a * y) @ X) ** 2) / (2 * lam * N * N)
    return P, D


def repeated(exchange):
    """Every message again, a second time at once and a third time later, behind newer ones."""
    late: list[MessageBatch] = []

    def again(messages):
        delivery = exchange(messages)
        batches = [delivery.messages, *late[-3:-2], delivery.messages]
        late.append(delivery.messages)
        return delivery._replace(messages=MessageBatch.merge(batches)._replace(time=messages.time))

    return again


@st.composite
def worlds(draw):
    """A problem, a network, what goes wrong on it, and how it is run."""
    network = draw(networks(directed=False, most=7))
    n_classes = draw(st.sampled_from([2, 2, 3]))
    problem = make_problem(
        draw(st.integers(0, 10**6)), draw(st.integers(20, 60)), draw(st.integers(1, 5)), n_classes, network.n,
        draw(st.booleans()),
    )  # fmt: skip
    wrong = draw(st.lists(st.sampled_from(["loss=0.3", "delay=3", "bounce=0.2", "loss=0.1"]), max_size=3))
    return SimpleNamespace(
        problem=problem, network=network, wrong=wrong, repeats=draw(st.booleans()), parts=draw(st.integers(1, 3)),
        ticks=draw(st.sampled_from([0, 1, 5, 40, 150])), algorithm=draw(st.sampled_from(ALGORITHMS)),
        lam=draw(st.sampled_from([0.3, LAM, 2e-3])), seed=draw(st.integers(0, 99)),
    )  # fmt: skip


@settings(max_examples=60)
@given(worlds())
def test_the_bound_is_never_below_the_true_gap(world):
    """Whatever the data, graph, algorithm, time, faults and grouping: F(w) - F* <= bound, and it is P - D itself."""
    exchange = wrap_all(make_faults(world.wrong), FaultContext(world.network.n, world.seed))
    exchange = repeated(exchange) if world.repeats else exchange
    runtime = make_runtime(
        world.problem, world.algorithm, world.network, exchange, world.parts, world.lam, seed=world.seed
    )
    runtime.advance(world.ticks)
    certificate = runtime.certify()
    assert certificate.failure == ""
    P, D = primal_and_dual(world.problem, runtime, certificate.model, world.lam)
    assert certificate.bound >= P - D - 1e-14 * P
    assert certificate.bound == pytest.approx(P - D, rel=1e-6, abs=1e-9)
    assert certificate.relative == pytest.approx((P - D) / D if D > 0 else np.inf, rel=1e-6, abs=1e-9)
    assert (certificate.bounds >= 0).all()
    best = optimum(world.problem, world.lam)
    if best is not None:
        gap = value(world.problem, certificate.model, world.lam) - best
        assert certificate.bound >= gap - 1e-12
        assert certificate.relative >= gap / best - 1e-12


@pytest.fixture(scope="module")
def problem():
    return make_problem(n_rows=240, n_features=8)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_goes_to_zero_as_the_nodes_learn(problem, algorithm):
    """Otherwise infinity would pass the test above: the bound is as good as the dual point."""
    runtime, seen = make_runtime(problem, algorithm), []
    for _ in range(4):
        runtime.advance(150)
        seen.append(runtime.certify().relative)
    assert seen[-1] < seen[0] < np.inf
    assert seen[-1] < 2e-3


@pytest.mark.parametrize("wrong", ["", "loss=0.3", "delay=3"])
@pytest.mark.parametrize("topology", ["ring", "star", "complete", "line", "random-regular:3"])
def test_every_node_ends_with_the_same_model_and_the_same_bound(problem, topology, wrong, monkeypatch):
    seen = []
    run = engine.LocalRuntime._run_sessions
    monkeypatch.setattr(engine.LocalRuntime, "_run_sessions", lambda *args: seen.extend(args[1]) or run(*args))
    exchange = wrap_all(make_faults(wrong or None), FaultContext(6, 0))
    runtime = make_runtime(problem, network=build(topology, 6, seed=1), exchange=exchange, parts=3)
    runtime.advance(20)
    owners = runtime.models()[0].copy()
    certificate = runtime.certify()
    models, bounds = (np.concatenate(x) for x in zip(*[(p.nodes.model, p.nodes.bound) for p in seen], strict=True))
    assert models.shape == (6, 8)
    assert (models == owners).all()
    assert (bounds == bounds[0]).all()
    np.testing.assert_array_equal(certificate.model, owners)
    assert (certificate.bound, certificate.owner) == (bounds[0][0], 0)
    assert (certificate.n_nodes, certificate.n_rows) == (6, 240)


@pytest.fixture
def impatient(monkeypatch):
    """Nodes that are away are declared dead, and their edges closed, after eight iterations."""
    for name, value in (("MIN_TIMEOUT_TICKS", 5), ("TIMEOUT_PER_MEAN", 0.0), ("FADE_TICKS", 3)):
        monkeypatch.setattr(edge_liveness, name, value)


@pytest.mark.parametrize("wrong", [None, ["loss=0.3", "delay=2"], [Crash(nodes=[0, 4], at=5)]])
@pytest.mark.parametrize("algorithm", [Pdmm(), MomDsvm()])
def test_blocks_and_threads_do_not_change_a_bit(algorithm, wrong, impatient):  # noqa: ARG001
    problem = make_problem(n_classes=3, n_nodes=7, weighted=True)
    found = []
    for parts, n_jobs in ((1, 1), (2, 1), (7, 1), (1, 2), (2, 3)):
        exchange = None if wrong is None else wrap_all(make_faults(wrong), FaultContext(7, 5))
        runtime = make_runtime(problem, algorithm, build("complete", 7, seed=1), exchange, parts, n_jobs=n_jobs)
        runtime.advance(20)
        certificate = runtime.certify()
        runtime.advance(5)
        runtime.close()
        found.append((certificate, runtime.models(), runtime.messages, runtime.nbytes))
    first, models, *counts = found[0]
    assert first.failure == ""
    for other, theirs, *counted in found[1:]:
        for name in ("model", "bounds", "duals"):
            np.testing.assert_array_equal(getattr(first, name), getattr(other, name), strict=True)
        assert (first.exchanges, first.messages, first.nbytes) == (other.exchanges, other.messages, other.nbytes)
        np.testing.assert_array_equal(models, theirs, strict=True)
        assert counts == counted


@pytest.mark.parametrize("wrong", [None, "loss=0.3"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_learning_goes_on_as_if_there_had_been_none(problem, algorithm, wrong):
    """MoM-DSVM counts exchanges that were missed: those of a certificate are none of them."""
    plain, asked = (
        make_runtime(
            problem, algorithm, exchange=None if wrong is None else wrap_all(make_faults(wrong), FaultContext(6, 2))
        )
        for _ in range(2)
    )
    for _ in range(4):
        plain.advance(10)
        asked.advance(10)
        assert asked.certify().failure == ""
    np.testing.assert_array_equal(plain.models(), asked.models())
    assert asked.messages > plain.messages


def test_without_faults_it_sends_one_vector_down_and_one_up_to_every_node(problem):
    """Messages: a hello both ways along every edge, then at most an ask; vectors: 2 (n - 1)."""
    network = build("random-regular:4", 6, seed=1)
    runtime = make_runtime(problem, network=network)
    runtime.advance(3)
    before = runtime.messages, runtime.nbytes
    certificate = runtime.certify()
    depth = int(network.hops(0).max())
    assert certificate.exchanges <= 3 * depth + 4
    vectors = 5 * 8 * (8 + 8 + 4 + 3)  # w; v, four sums, three counts
    assert 0 <= certificate.nbytes - vectors - certificate.messages * (HEADER_BYTES + 16) <= 5 * 8 * 4
    assert certificate.messages <= 2 * network.n_edges + 3 * 5
    assert (runtime.messages, runtime.nbytes) == (before[0] + certificate.messages, before[1] + certificate.nbytes)


def test_a_long_line_needs_no_knowledge_of_its_length():
    problem = make_problem(n_rows=200, n_nodes=60)
    certificate = make_runtime(problem, network=build("line", 60)).certify()
    assert certificate.n_nodes == 60
    assert certificate.exchanges <= 3 * 59 + 4


def exact(problem, w, alpha, lam=LAM):
    """P and D in fractions, without rounding."""
    X, y = problem.X.toarray(), [1 if label == 1 else -1 for label in problem.label]
    rows = [[Fraction(x) for x in row] for row in X.tolist()]
    w, alpha, lam, N = [Fraction(x) for x in w.tolist()], [Fraction(a) for a in alpha.tolist()], Fraction(lam), len(y)
    margins = [s * sum(a * b for a, b in zip(row, w, strict=True)) for s, row in zip(y, rows, strict=True)]
    v = [sum(a * s * row[q] for a, s, row in zip(alpha, y, rows, strict=True)) for q in range(len(w))]
    primal = lam / 2 * sum(x * x for x in w) + sum(max(Fraction(0), 1 - m) for m in margins) / N
    return primal, sum(alpha) / N - sum(x * x for x in v) / (2 * lam * N * N)


@pytest.mark.parametrize("seed", range(12))
def test_rounding_is_on_the_safe_side(seed):
    """Bound and dual value against exact arithmetic, at every tick on the way to the optimum."""
    problem = make_problem(seed, n_rows=50, n_features=3, n_nodes=3)
    runtime = make_runtime(problem, network=build("complete", 3))
    for _ in range(12):
        runtime.advance(1)
        certificate = runtime.certify()
        primal, dual = exact(problem, certificate.model[0], runtime.run.duals(runtime.blocks[0])[0])
        assert primal - dual <= Fraction(certificate.bound) < primal - dual + Fraction(1, 10**11)
        assert dual - Fraction(1, 10**11) < Fraction(certificate.duals[0]) <= dual


@pytest.mark.parametrize("seed", range(8))
def test_rounding_is_on_the_safe_side_where_digits_cancel(seed):
    """Rows of 1e8 whose scores are about one: their last digits are worth more than all other rounding."""
    rng = np.random.default_rng(seed)
    large = 1e8 * rng.normal(size=(40, 1))
    problem = make_problem(seed, n_rows=40, n_features=2, n_nodes=3)
    X = sp.csr_matrix(large + rng.normal(size=(40, 2)))
    problem = Problem(X, problem.label, None, problem.shares, problem.sites, 1)
    runtime = make_runtime(problem, network=build("complete", 3))
    runtime.advance(1)
    (block,) = runtime.blocks
    block.w[0, 0], block.edge["dual"][0] = [1.0 + 1e-9, -1.0], rng.uniform(size=40)
    certificate = runtime.certify()
    primal, dual = exact(problem, certificate.model[0], runtime.run.duals(block)[0])
    assert primal - dual <= Fraction(certificate.bound) < (primal - dual) * (1 + Fraction(1, 10**10))
    assert Fraction(certificate.duals[0]) <= dual
    block.edge["dual"][0] = 0.0
    certificate = runtime.certify()
    primal, _ = exact(problem, certificate.model[0], np.zeros(40))
    assert primal <= Fraction(certificate.bound) < primal + Fraction(1, 10**3)


def test_nodes_that_are_gone_are_left_out_with_their_rows(problem):
    """Once they are declared dead. The certificate is that of the others' rows: their optimum, not the pooled one."""
    network, gone = build("complete", 6), [0, 3]
    runtime = make_runtime(
        problem, network=network, exchange=wrap_all([Crash(nodes=gone, at=20)], FaultContext(6, 0)), parts=2
    )
    runtime.advance(20 + REJOIN_GRACE_ITERATIONS)
    assert "away for 10 iterations, and not declared dead" in runtime.certify().failure
    runtime.advance(500)
    certificate = runtime.certify()
    live, rows = without(problem, gone)
    P, D = primal_and_dual(problem, runtime, certificate.model, rows=rows)
    assert certificate.bound == pytest.approx(P - D, rel=1e-6, abs=1e-9)
    assert value(live, certificate.model) / optimum(live) - 1 <= certificate.relative < 0.05
    assert (certificate.owner, certificate.n_nodes, certificate.n_rows) == (1, 4, len(rows))
    assert certificate.nodes.tolist() == [1, 2, 4, 5]


def test_a_node_that_is_away_for_long_costs_nothing_and_is_waited_for(problem):
    runtime = make_runtime(problem, exchange=wrap_all([Crash(nodes=[2], at=18, back=31)], FaultContext(6, 0)))
    rule = GapBelow(tol=1e-9)
    runtime.advance(28)
    assert not rule.fires(runtime, 0.0)
    assert (rule.value, rule.certificate.exchanges, rule.certificate.messages) == (np.inf, 0, 0)
    assert rule.next_check(28) == 29
    runtime.advance(3)
    rule.fires(runtime, 0.0)
    assert (rule.certificate.n_nodes, rule.certificate.failure) == (6, "")
    assert rule.next_check(31) > 32  # by the bound, not at once


@pytest.mark.parametrize(
    ("network", "fault"),
    [
        ("complete", Partition(at=1)),
        ("complete", Partition(at=1, lost=True)),
        ("ring", Loss(1.0)),
        ("line", Crash([3])),
    ],
    ids=["partition", "silent partition", "all lost", "a gap in the line"],
)
def test_who_is_cut_off_makes_it_fail_and_learning_goes_on(problem, network, fault, impatient):  # noqa: ARG001
    runtime = make_runtime(problem, network=build(network, 6), exchange=wrap_all([fault], FaultContext(6, 0)), parts=2)
    runtime.advance(20)
    certificate = runtime.certify()
    assert (certificate.bound, certificate.relative) == (np.inf, np.inf)
    assert "cut off" in certificate.failure
    assert MAX_IDLE_EXCHANGES <= certificate.exchanges < MAX_IDLE_EXCHANGES + 30
    runtime.advance(5)
    assert runtime.t == 25


def test_learners_hear_later_of_nodes_that_left_while_a_certificate_was_made(problem):
    news = iter([((), ()), ((), (4,))])

    def exchange(messages):
        joined, left = (
            next(news, ((), ())) if messages.time == 30 and len(messages.seq) and messages.seq[0] < 0 else ((), ())
        )
        return Delivery(messages, joined, left)

    runtime = make_runtime(problem, network=build("complete", 6), exchange=exchange)
    runtime.advance(30)
    assert runtime.certify().n_nodes == 6
    assert runtime.live_mask().all()
    runtime.advance(1)
    assert runtime.live_mask().tolist() == [True] * 4 + [False, True]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_nodes_sums_do_not_depend_on_the_nodes_that_are_summed_with_it(n_classes):
    problem, network = make_problem(n_classes=n_classes, weighted=True), build("complete", 6)
    runtimes = [make_runtime(problem, network=network, parts=parts) for parts in (1, 6)]
    for runtime in runtimes:
        runtime.advance(30)
    together, alone = (runtime.certify() for runtime in runtimes)
    assert (alone.bounds.tolist(), alone.duals.tolist()) == (together.bounds.tolist(), together.duals.tolist())


@pytest.mark.parametrize(
    "wrong", [[Churn(0.3, 0.3)], [Churn(0.1, 0.3), "loss=0.2", "delay=2"], ["async=0.3"], ["slow=3"]], ids=str
)
def test_nodes_that_come_and_go_take_part_and_the_bound_holds(problem, wrong):
    """Nobody is declared dead: the problem is that of all rows, also where some node is away at every moment."""
    runtime, bounds = make_runtime(problem, exchange=wrap_all(make_faults(wrong), FaultContext(6, 1)), parts=2), []
    for _ in range(16):
        runtime.advance(25)
        certificate = runtime.certify()
        if certificate.failure:
            assert certificate.bound == np.inf
            continue
        bounds.append(certificate.relative)
        P, D = primal_and_dual(problem, runtime, certificate.model)
        assert certificate.bound == pytest.approx(P - D, rel=1e-6, abs=1e-9)
        assert value(problem, certificate.model) / optimum(problem) - 1 <= certificate.relative
        assert certificate.nodes.tolist() == list(range(6))
    assert len(bounds) >= 3
    assert min(bounds) < 1.0


def test_a_fit_under_churn_stops_with_a_certificate_of_all_nodes(toy):
    """While a node is away it is waited for; a certificate of those who happen to be here would bound nothing."""
    settings = {"lam": 0.05, "stopping": "gap", "tol": 0.05, "random_state": 0, "max_iter": 2000}
    model = GadgetSVC(8, algorithm=Pdmm(neighbours="all"), faults=Churn(0.05, 0.2), **settings).fit(toy.X, toy.y)
    assert model.converged_
    assert model.gap_bound_ <= 0.05
    assert model.certified_nodes_.tolist() == list(range(8))
    assert model.certificate_note_ == ""
    assert (model.node_coef_ == model.node_coef_[0]).all()


def test_a_fit_that_lost_nodes_names_those_it_certifies(toy, impatient):  # noqa: ARG001
    settings = {"lam": 0.05, "stopping": "gap", "tol": 0.05, "random_state": 0, "max_iter": 2000}
    dead = Crash(nodes=[1, 4], at=3)
    model = GadgetSVC(6, "complete", algorithm=Pdmm(neighbours="all"), faults=dead, **settings).fit(toy.X, toy.y)
    assert model.certified_nodes_.tolist() == [0, 2, 3, 5]
    assert model.certificate_note_ == "counting the rows of 4 of 6 nodes, not of node 1, node 4"


def test_what_is_not_finite_is_not_certified(problem):
    runtime = make_runtime(problem)
    runtime.advance(2)
    runtime.blocks[0].w[0, 0, 3] = np.nan
    assert "not finite" in runtime.certify().failure


def test_all_nodes_away(problem):
    runtime = make_runtime(problem, exchange=wrap_all([Crash(nodes=range(6), at=3)], FaultContext(6, 0)))
    runtime.advance(30)
    assert runtime.certify().failure == "all nodes are away"


def test_mail_of_an_older_certificate_is_not_taken_for_that_of_this_one(problem):
    """The old one's bound, sums and model arrive in the midst of the new one, for which the nodes have moved."""
    old: list[MessageBatch] = []

    def exchange(messages):
        if messages.time == 5 and messages.seq[:1].any() and messages.seq[0] < 0:
            old.append(messages)
        stale = old if messages.time > 5 else []
        return Delivery(MessageBatch.merge([*stale, messages])._replace(time=messages.time))

    runtime = make_runtime(problem, exchange=exchange)
    runtime.advance(5)
    first = runtime.certify()
    runtime.advance(40)
    second = runtime.certify()
    P, D = primal_and_dual(problem, runtime, second.model)
    assert second.bound == pytest.approx(P - D, rel=1e-6)
    assert second.bound != first.bound
    np.testing.assert_array_equal(second.model, runtime.models()[0])


def test_what_reaches_learners_during_a_certificate_is_kept_for_them():
    def messages(seq, width, note):
        one = np.ones(1, dtype=np.int64)
        return MessageBatch(
            7, one, one, np.array([seq]), np.full((1, width), float(seq)), np.ones(1), np.ones(1) if note else None
        )

    wire = Channel(Delay(most=1, least=1).wrap(Delivery, FaultContext(3, 0)), width=5)
    assert wire.learn(messages(3, 2, note=False)).messages.n_messages == 0
    assert wire.certify(messages(-9, 4, note=True)).messages.n_messages == 0
    arrived = wire.certify(messages(-8, 5, note=True)).messages
    assert (arrived.seq.tolist(), arrived.vector[0, :4].tolist()) == ([-9], [-9.0] * 4)
    arrived = wire.learn(messages(4, 2, note=False)).messages
    assert (arrived.seq.tolist(), arrived.vector.tolist(), arrived.note) == ([3], [[3.0, 3.0]], None)
    assert arrived.vector.flags.c_contiguous
    assert wire.learn(messages(5, 2, note=False)).messages.seq.tolist() == [4]


def test_algorithms_without_a_dual_are_refused_with_the_way_out(toy):
    with pytest.raises(ValueError, match="use algorithm='pdmm'"):
        GadgetSVC(4, algorithm="gadget", stopping="gap").fit(toy.X, toy.y)
    block = make_runtime(make_problem()).blocks[0]
    network = build("ring", 6)
    with pytest.raises(ValueError, match="dual variables, which this algorithm does not keep"):
        LocalRuntime(Gadget().bind(network, LAM, 1.0), [block], lam=LAM).certify()
    with pytest.raises(ValueError, match="give LocalRuntime the problem's lam"):
        LocalRuntime(Pdmm().bind(network, LAM, 1.0), [block]).certify()


def fit(toy, y=None, **options):
    settings = {"lam": LAM, "algorithm": "pdmm", "stopping": "gap", "fit_intercept": False, "random_state": 0}
    weight = options.pop("sample_weight", None)
    return GadgetSVC(5, **settings | options).fit(toy.X, toy.y if y is None else y, sample_weight=weight)


def true_gap(toy, model, y=None, weight=None):
    """F/F* - 1 of the model, from the user's arrays."""
    label = np.searchsorted(model.classes_, toy.y if y is None else y).astype(np.int32)
    per_class = dict.fromkeys(model.classes_.tolist(), 1.0) | (model.class_weight or {})
    weight = np.array([per_class[c] for c in model.classes_[label].tolist()]) * (1.0 if weight is None else weight)
    X = toy.X if not model.fit_intercept else np.hstack([toy.X, np.ones((60, 1))])
    whole = model.coef_ if not model.fit_intercept else np.hstack([model.coef_, model.intercept_[:, None]])
    shares = SimpleNamespace(order=np.arange(60))
    problem = Problem(sp.csr_matrix(X), label, weight, shares, [], len(whole))
    return value(problem, whole, model.lam) / optimum(problem, model.lam) - 1


@pytest.mark.parametrize("algorithm", ["pdmm", "mom-dsvm"])
@pytest.mark.parametrize("tol", [0.05, 0.002])
def test_the_estimator_returns_the_certified_model_at_every_node(toy, algorithm, tol):
    model = fit(toy, algorithm=algorithm, tol=tol)
    assert (model.converged_, model.stopped_by_) == (True, "converged")
    assert 0 < model.gap_bound_ <= tol
    assert model.movement_ == model.gap_bound_ == model.history_[-1]["bound"]
    assert -1e-9 < true_gap(toy, model) <= model.gap_bound_
    assert (model.node_coef_ == model.coef_).all()
    np.testing.assert_array_equal(model.node(3).coef_, model.coef_)
    assert model.history_[-1]["objective"] == pytest.approx(model.history_[-1]["worst_objective"])
    assert model.history_[-1]["disagreement"] < 1e-12


@pytest.mark.parametrize(
    "options",
    [
        {"three": True},
        {"three": True, "class_weight": {0: 3.0, 1: 0.5, 2: 1.0}},
        {"class_weight": {0: 4.0, 1: 1.0}, "fit_intercept": True},
        {"sample_weight": np.linspace(0.1, 3, 60)},
        {"sample_weight": np.arange(60) % 4 + 0.0, "engine_options": {"blocks": 3}},
        {"faults": ["loss=0.2", "delay=2"]},
        {"faults": "slow=2"},
        {"faults": {"crash": {"nodes": [1], "at": 5, "back": 25}}},
    ],
    ids=["classes", "class weights", "intercept", "weights", "counts", "lossy", "slow", "back again"],
)  # fmt: skip
def test_the_true_gap_is_within_the_tolerance(toy, options):
    options = dict(options)
    y, weight = toy.three if options.pop("three", False) else toy.y, options.get("sample_weight")
    model = fit(toy, y, tol=0.01, **options)
    assert model.converged_
    assert -1e-9 < true_gap(toy, model, y, weight) <= model.gap_bound_ <= 0.01


def test_one_node_alone(toy):
    model = GadgetSVC(1, lam=LAM, algorithm="pdmm", stopping="gap", fit_intercept=False).fit(toy.X, toy.y)
    assert model.converged_
    assert true_gap(toy, model) <= model.gap_bound_ <= 0.01


def test_not_converged_is_said_with_the_bound_or_the_reason(toy):
    with pytest.warns(
        ConvergenceWarning, match=r"max_iter=35 before stopping='gap' was met \(the last certified bound was"
    ):
        model = fit(toy, tol=1e-12, max_iter=35)
    assert (model.gap_bound_, model.converged_) == (None, False)
    assert model.movement_ == model.history_[-1]["bound"] < np.inf  # a last look at the last iteration
    assert not (model.node_coef_ == model.node_coef_[0]).all()
    with pytest.warns(ConvergenceWarning, match="no model can be certified while .* cut off"):
        fit(toy, topology="complete", max_iter=35, faults=Partition(at=1))


def test_other_rules_have_no_bound(toy):
    model = fit(toy, stopping=None, max_iter=30)
    assert model.gap_bound_ is None
    assert "bound" not in model.history_[-1]


def test_the_model_file_keeps_the_bound(toy, tmp_path):
    model = fit(toy, tol=0.05)
    again = load_model(save_model(model, tmp_path / "m.safetensors"))
    assert again.gap_bound_ == model.gap_bound_
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_a_value_of_no_worth_is_no_bound():
    """Where D is not positive nothing relative can be said."""
    parts = {
        "model": np.zeros((1, 2)),
        "owner": 0,
        "n_rows": 3.0,
        "n_nodes": 1,
        "exchanges": 0,
        "messages": 0,
        "nbytes": 0,
    }
    certificate = Certificate(bounds=np.array([0.5]), duals=np.array([-0.1]), **parts)
    assert (certificate.bound, certificate.relative) == (0.5, np.inf)


def test_a_bound_in_words_is_never_rounded_down():
    assert [at_most(x) for x in (0.0068, 0.00681, 0.0099999, 0.5, 0.0)] == ["0.68 %", "0.69 %", "1 %", "50 %", "0 %"]


def test_adult(adult):
    """Within a hundred ticks a model is certified to one per cent (the issue's first figure is of the true gap)."""
    model = GadgetSVC(
        10, lam=3.07e-5, algorithm="pdmm", stopping="gap", fit_intercept=False, random_state=0, max_iter=150
    )
    model.fit(adult.X, adult.y)
    assert model.converged_
    best = 0.351150
    assert model.history_[-1]["objective"] / best - 1 <= model.gap_bound_ + 1e-5


def compare_with_messages(network, n_classes):
    """Three certificates that are computed, and those that an exchange of messages gives."""
    problem = make_problem(n_nodes=network.n, n_classes=n_classes)
    repeats, sends = (make_runtime(problem, network=network, exchange=exchange) for exchange in (None, Delivery))
    for _ in range(3):
        for runtime in (repeats, sends):
            runtime.advance(7)
        ours, theirs = vars(repeats.certify()), vars(sends.certify())
        assert {name: np.asarray(value).tobytes() for name, value in ours.items()} == {
            name: np.asarray(value).tobytes() for name, value in theirs.items()
        }
        assert (ours["messages"] > 0) == (network.n > 1)
        assert (repeats.messages, repeats.nbytes) == (sends.messages, sends.nbytes)
    assert repeats._echo is not None


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("shape", ["ring", "complete", "random-regular:4", "tree", "star"])
def test_a_computed_certificate_has_the_bits_and_the_cost_of_its_messages(shape, n_classes):
    compare_with_messages(build(shape, 9, seed=4), n_classes)


@settings(max_examples=50)
@given(networks(directed=False, most=9))
def test_it_has_on_any_graph(network):
    compare_with_messages(network, 2)


def test_it_has_where_messages_take_so_long_that_nodes_ask_again():
    compare_with_messages(build("line", 60), 2)


def test_a_computed_certificate_sends_no_vectors_to_find_out_how_it_would_go(problem, monkeypatch):
    widths = []
    monkeypatch.setattr(
        engine, "Delivery", lambda messages: (widths.append(messages.vector.shape[1]), Delivery(messages))[1]
    )
    assert make_runtime(problem).certify().vectors == 10
    assert set(widths) == {0}


def test_a_lone_node_repeats_its_certificate_too():
    problem = make_problem(n_nodes=1)
    runtime = make_runtime(problem, network=build("complete", 1, seed=0))
    bounds = []
    for _ in range(4):
        runtime.advance(5)
        bounds.append(runtime.certify().bound)
    assert bounds[-1] < bounds[0] < np.inf
