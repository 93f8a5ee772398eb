"""Every method of the tables, on small data."""

import pytest

from gadget_svm.algorithms import gadget_as_printed
from gadget_svm.reproduction.baselines.optimum import certified_optimum
from gadget_svm.reproduction.methods import METHODS, Budget, run_network, run_to_gap
from gadget_svm.reproduction.trials import Trial, fingerprint, majority_percent
from gadget_svm.spectral import randomised_rounds

LAM = 1e-2


@pytest.fixture(scope="module")
def trial(cancer):
    return Trial(cancer, LAM, 4, 0)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("optimum", "loading")])
def test_method_learns(trial, method):
    """Each method on four nodes is far better than the majority class, and has one figure per node."""
    result = METHODS[method](trial, Budget(2000, 60, 5, 5.0))
    assert len(result["own"]) == len(result["objective"]) in (1, 4)
    assert min(result["whole"]) > (70 if method == "authors-program" else 85) > majority_percent(trial.data)
    assert all(value > 0 for value in result["seconds"])


def test_readings_differ_in_rounds_and_agreement(trial):
    """As printed: Push-Sum to gamma in every iteration. Persistent mass: one exchange per iteration."""
    printed, persistent = (run_network(trial, name, 50) for name in ("gadget-as-printed", "gadget"))
    network = gadget_as_printed().with_transition_of(trial.network)
    assert persistent["messages"] == 50 * 4
    assert printed["messages"] == 50 * 4 * randomised_rounds(network, 0.01)
    assert printed["disagreement"] < 0.05 < persistent["disagreement"]


def test_no_method_is_below_the_certified_optimum(trial):
    best = METHODS["optimum"](trial, Budget())
    assert 0 <= best["gap"] <= 1e-4
    for method in ("gadget", "mom-dsvm", "svm-perf-all", "liblinear"):
        assert min(METHODS[method](trial, Budget(500, 60))["objective"]) >= best["bound"]


def test_trace_does_not_change_the_run(trial):
    plain, traced = (METHODS[method](trial, Budget(300)) for method in ("gadget", "gadget-trace"))
    assert plain["objective"] == traced["objective"]
    assert len(traced["trace"]) > 5
    seconds = [point[0] for point in traced["trace"]]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize(("lam", "seed"), [(1e-1, 0), (1e-2, 1), (1e-4, 2)])
def test_mom_dsvm_keeps_its_promise(cancer, lam, seed):
    """Every node is within one per cent of the optimum certified apart, and never farther than it proves."""
    best, trial = certified_optimum(cancer.X, cancer.y, lam, 1e-5), Trial(cancer, lam, 4, seed)
    result = METHODS["mom-dsvm"](trial, Budget())
    worst = max(result["objective"])
    assert result["converged"] == [True] * 4
    assert result["gap"] <= result["promise"] == 0.01
    assert worst <= 1.01 * best.objective
    assert worst - best.objective <= result["epsilon"] + 1e-12
    assert worst / best.objective - 1 <= result["gap"] + 1e-12
    assert result["iterations"][0] < Budget().admm_iterations
    assert result["messages"] == result["iterations"][0] * trial.network.n_edges


def test_mom_dsvm_cut_short_is_not_converged(cancer):
    result = METHODS["mom-dsvm"](Trial(cancer, 1e-4, 4, 0), Budget(admm_iterations=12))
    assert result["iterations"] == [12] * 4
    assert result["gap"] > result["promise"]
    assert not any(result["converged"])


def test_computing_the_gap_does_not_change_the_run(trial):
    watched, alone = run_to_gap(trial, "mom-dsvm", 0.0, 90), run_network(trial, "mom-dsvm", 90)
    assert watched["objective"] == alone["objective"]
    assert watched["messages"] == alone["messages"]


def test_smaller_promise_takes_more_iterations(trial):
    rough, fine = (run_to_gap(trial, "mom-dsvm", promise, 4000) for promise in (0.1, 1e-4))
    assert fine["iterations"][0] > rough["iterations"][0]
    assert fine["gap"] <= 1e-4


def test_fingerprint_sees_a_changed_value(cancer):
    before = fingerprint(cancer)
    cancer.X.data[0] += 1e-9
    changed = fingerprint(cancer)
    cancer.X.data[0] -= 1e-9
    assert before != changed


def test_majority_percent_counts_test_rows(cancer):
    positive = (cancer.y_test > 0).mean()
    assert majority_percent(cancer) == 100 * max(positive, 1 - positive)
