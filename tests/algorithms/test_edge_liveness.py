"""Nodes that are away or idle under PDMM: edges are kept, dropped late and gently, and every node stays near the
optimum of all nodes that are not declared dead."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.svm import LinearSVC
from test_pdmm import in_blocks, noisy  # noqa: F401 - a fixture

from gadget_svm import GadgetSVC
from gadget_svm.algorithms import Pdmm, edge_liveness
from gadget_svm.core.rows import Objective
from gadget_svm.faults import Asynchronous, Churn, Crash, FaultContext, Partition, make_faults, wrap_all
from gadget_svm.gossip import PushSum
from gadget_svm.topologies import build
from support.gossip_blocks import gossiped, some_block

LAM, NODES = 1e-3, 12
NEIGHBOURS = pytest.mark.parametrize("neighbours", [1, "all"])


@pytest.fixture(scope="module")
def problem():
    """480 rows of 20 features that no plane separates, and their optimal value."""
    X, y = make_classification(480, 20, n_informative=8, flip_y=0.15, random_state=3)
    best = LinearSVC(loss="hinge", C=1 / (LAM * 480), fit_intercept=False, tol=1e-8, max_iter=10**6).fit(X, y)
    objective = Objective(sp.csr_matrix(X), y.astype(np.int32), np.ones(480), np.ones(480), LAM, 1)
    return SimpleNamespace(X=X, y=y, optimum=float(objective(best.coef_[None]).objective[0]))


def worst(problem, faults, ticks, neighbours="all", record_every=1, blocks=1):
    """The gap of the worst node that is here in every record, and the model."""
    model = GadgetSVC(
        NODES, lam=LAM, algorithm=Pdmm(neighbours=neighbours), fit_intercept=False, stopping=None, max_iter=ticks,
        faults=faults, record_every=record_every, random_state=0, engine_options={"blocks": blocks}, n_jobs=1,
    ).fit(problem.X, problem.y)  # fmt: skip
    return np.array([record["worst_objective"] for record in model.history_]) / problem.optimum - 1, model


@NEIGHBOURS
@pytest.mark.parametrize(
    "faults",
    [
        [Churn()],
        [Churn(0.3, 0.3)],
        [Churn(), "loss=0.2", "delay=3"],
        [Churn(), Partition(at=250, heal=300, lost=True)],
    ],
    ids=["churn", "fast churn", "churn, loss and delay", "churn and partition"],
)
def test_under_churn_every_node_stays_near_the_optimum_of_all(problem, faults, neighbours):
    """Dropped after 5 ticks of absence, some node was 5 to 300 % above it at most moments."""
    gaps, _ = worst(problem, faults, 400, neighbours)
    assert gaps[200:].max() < 0.05
    assert gaps[-1] < 0.01


@NEIGHBOURS
@pytest.mark.parametrize(
    "faults", [["async=0.3"], [Churn(0.7, 0.3)], ["async=0.3", "loss=0.2", "delay=3"]],
    ids=["mail waits", "mail bounces", "loss and delay"],
)  # fmt: skip
def test_nodes_that_wake_at_random_reach_the_optimum(problem, faults, neighbours):
    gaps, model = worst(problem, faults, 1500, neighbours, record_every=0)
    assert gaps[-1] < 0.01
    assert model.history_[-1]["messages"] < 0.4 * 1500 * (NODES if neighbours == 1 else model.network_.n_edges)


@NEIGHBOURS
def test_a_drop_and_a_return_throw_no_node_far_off(problem, neighbours):
    """All edges of two nodes are dropped and reopened: no more than a few percent, where it was up to 375."""
    faults = [Crash([3, 7], at=100, back=400)]
    gaps, _ = worst(problem, faults, 700, neighbours)
    assert gaps[100:].max() < 0.08
    assert gaps[-1] < 0.005


def test_a_dead_neighbour_is_dropped_at_every_living_end(noisy):  # noqa: F811
    """Node 3 of a ring dies at tick 20: its neighbours' edges fade after PATIENCE ticks, and are closed then."""
    runtime, _, _ = in_blocks(noisy, 6, Pdmm(neighbours="all"), exchange=wrap_all([Crash([3], 20)], FaultContext(6, 0)))
    two = runtime.blocks[2]
    runtime.advance(20 + edge_liveness.MIN_TIMEOUT_TICKS + edge_liveness.FADE_TICKS - 2)
    assert two.edge["open"].all()
    before = two.w.copy()
    runtime.advance(1)
    assert [block.edge["open"].tolist() for block in runtime.blocks[2:5:2]] == [[True, False], [False, True]]
    assert two.edge["epoch"].tolist() == [0, 1]
    assert np.linalg.norm(two.w - before) < 0.05 * np.linalg.norm(before)


def test_patience_follows_the_silences_that_ended_up_to_a_cap(noisy):  # noqa: F811
    runtime, _, _ = in_blocks(noisy, exchange=wrap_all([], FaultContext(6, 0)))
    runtime.advance(1)
    block = runtime.blocks[0]
    own = block.edge
    assert set(edge_liveness.timeout_ticks(block).tolist()) == {edge_liveness.MIN_TIMEOUT_TICKS}
    own["n_silences"][0], own["total_silence"][0] = 9, 292  # with the first guess of 8 ticks a mean of 30
    own["wrong_drops"][1:3] = [1, 2]
    own["wrong_drops"][3] = own["wrong_drops"][4] = 60
    wanted = [12 * 30, 200, 400, edge_liveness.MAX_TIMEOUT_TICKS, edge_liveness.MAX_TIMEOUT_TICKS]
    assert edge_liveness.timeout_ticks(block).tolist()[:5] == wanted


def test_a_wrong_drop_doubles_the_patience(noisy, monkeypatch):  # noqa: F811
    """Away for 30 ticks, five times, with a patience of 10: dropped twice, after that it is waited for."""
    monkeypatch.setattr(edge_liveness, "MIN_TIMEOUT_TICKS", 10)
    monkeypatch.setattr(edge_liveness, "FADE_TICKS", 3)
    monkeypatch.setattr(edge_liveness, "TIMEOUT_PER_MEAN", 0.0)
    faults = [Crash([3], at, at + 30) for at in range(20, 320, 60)]
    runtime, _, _ = in_blocks(noisy, 2, Pdmm(neighbours="all"), exchange=wrap_all(faults, FaultContext(6, 0)))
    block, closed = runtime.blocks[0], []
    for _ in range(5):
        runtime.advance(18 + 30 - runtime.t % 60)
        closed.append(not block.edge["open"].all())
        runtime.advance(60 - runtime.t % 60)
        assert block.edge["open"].all()
    assert closed == [True, True, False, False, False]
    assert block.edge["wrong_drops"].max() == 2


@NEIGHBOURS
@pytest.mark.parametrize("faults", [[Crash([1, 5], at=10, back=45)], ["async=0.4", Churn(0.05, 0.05)]], ids=str)
def test_blocks_agree_bit_for_bit_where_edges_are_dropped(problem, monkeypatch, faults, neighbours):
    monkeypatch.setattr(edge_liveness, "MIN_TIMEOUT_TICKS", 10)
    monkeypatch.setattr(edge_liveness, "FADE_TICKS", 5)
    monkeypatch.setattr(edge_liveness, "TIMEOUT_PER_MEAN", 0.0)
    alone = worst(problem, faults, 70, neighbours)[1].node_coef_
    for blocks in (3, NODES):
        np.testing.assert_array_equal(alone, worst(problem, faults, 70, neighbours, blocks=blocks)[1].node_coef_)


def test_idle_nodes_are_here_and_mail_waits_for_them():
    block, exchange = some_block(build("complete", 8), 1, 0), wrap_all([Asynchronous(0.3)], FaultContext(8, 1))
    total, acted, waiting = block.n.sum(), [], []
    for after in gossiped(PushSum(), block, 300, exchange):
        acted.append(after.alive.mean())
        waiting.append(total - after.phi.sum())
        assert after.live_mask.all()
        assert not after.away.any()
    assert np.mean(acted) == pytest.approx(0.3, abs=0.04)
    assert max(waiting) > 0
    assert np.median(waiting) < 0.9 * total


def test_an_asynchronous_fault_is_made_by_name():
    assert make_faults("async=0.3") == make_faults("async") == [Asynchronous(0.3)]
    with pytest.raises(ValueError, match="probability"):
        wrap_all(make_faults("async=3"), FaultContext(3, 0))
