"""A budget is spent exactly: an accountant that does not know the formula finds the same epsilon."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

dp_accounting = pytest.importorskip("dp_accounting")
from gadget_svm.privacy import DifferentialPrivacy, epsilon_of, secret_normals  # noqa: E402


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (4.0, 1e-5), (10.0, 1e-8)])
def test_an_independent_accountant_agrees(epsilon, delta):
    from dp_accounting import pld

    plan = DifferentialPrivacy(epsilon, delta).plan(nodes=10, rows=32_561, dimension=124)
    # The sensitivity to a replaced row is what the noise multiplier is relative to: one Gaussian mechanism a round.
    accountant = pld.PLDAccountant().compose(dp_accounting.GaussianDpEvent(plan.noise_multiplier), plan.rounds)
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=1e-3)


@given(
    epsilon=st.floats(0.05, 20), delta=st.floats(1e-10, 1e-4), nodes=st.integers(1, 200), rows=st.integers(1, 10**7),
    dimension=st.integers(1, 10**6),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_the_plan_spends_the_budget_and_no_more(epsilon, delta, nodes, rows, dimension):
    plan = DifferentialPrivacy(epsilon, delta).plan(nodes, rows, dimension)
    spent = epsilon_of(np.sqrt(plan.rounds) / plan.noise_multiplier, delta)
    assert spent == pytest.approx(epsilon, rel=1e-6)
    assert plan.rounds >= 1
    assert 0 < plan.step_size <= 3


def test_fewer_rounds_spend_less():
    plan = DifferentialPrivacy(2.0).plan(4, 1000, 10)
    spent = [epsilon_of(np.sqrt(rounds) / plan.noise_multiplier, 1e-6) for rounds in range(plan.rounds + 1)]
    assert spent[0] == 0.0
    assert spent == sorted(spent)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0}, "epsilon must be a positive number"),
        ({"epsilon": "1"}, "epsilon must be a positive number"),
        ({"epsilon": True}, "epsilon must be a positive number"),
        ({"epsilon": 1.0, "delta": 0.5}, "delta must be far below 1 / rows"),
        ({"epsilon": 1.0, "clip": float("inf")}, "clip must be a positive number"),
        ({"epsilon": 1.0, "rounds": 0}, "rounds must be a whole number"),
        ({"epsilon": 1.0, "noise": "none"}, "unknown noise"),
    ],
)
def test_wrong_budgets_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        DifferentialPrivacy(**wrong).check()


def test_secret_noise_is_normal_and_never_the_same():
    first, second = secret_normals(100_001), secret_normals(100_001)
    assert len(first) == 100_001
    assert np.abs(first).max() < 9
    for moment, wanted, spread in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        assert (first**moment).mean() == pytest.approx(wanted, abs=6 * np.sqrt(spread / len(first)))
    assert abs(np.corrcoef(first, second)[0, 1]) < 6 / np.sqrt(len(first))
