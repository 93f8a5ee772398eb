"""An attack on the private algorithm proves nearly the epsilon that it claims, never more, and finds missing noise."""

import numpy as np
import pytest
from scipy.stats import norm

from gadget_svm.algorithms import private_gradient
from gadget_svm.algorithms.private_gradient import PrivateGradientRun
from gadget_svm.attacks import PrivateSites, audit, best_guess, mu_lower_bound
from gadget_svm.privacy import DifferentialPrivacy


def seeded(epsilon):
    return DifferentialPrivacy(epsilon, noise="seeded")


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).normal(size=(30, 5))
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture
def half_the_noise(monkeypatch):
    """Noise for half the sensitivity, as if a row were added or removed and not replaced; the plan does not know."""
    right = PrivateGradientRun.sensitivity
    monkeypatch.setattr(PrivateGradientRun, "sensitivity", lambda self, block: 0.5 * right(self, block))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_bound_is_below_the_claim_and_close(rows, epsilon):
    found = audit(*rows, seeded(epsilon))
    assert found.claimed_epsilon == pytest.approx(epsilon)
    assert 0.5 * epsilon < found.epsilon <= found.claimed_epsilon


@pytest.mark.usefixtures("half_the_noise")
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_half_the_noise_is_found(rows, epsilon):
    found = audit(*rows, seeded(epsilon))
    assert found.claimed_epsilon == pytest.approx(epsilon)
    assert found.epsilon > 1.4 * epsilon


def test_noise_of_the_operating_system_is_audited(rows, monkeypatch):
    claim = DifferentialPrivacy(4.0, noise="secret")
    assert 1.0 < audit(*rows, claim, runs=1000).epsilon < 4.0
    right = private_gradient.secret_normals
    monkeypatch.setattr(private_gradient, "secret_normals", lambda count: 0.5 * right(count))
    assert audit(*rows, claim, runs=1000).epsilon > 4.0


def test_messages_tell_the_released_slopes(rows, monkeypatch):
    """At any model that the attacker chooses, it reads exactly the slope that the node released."""
    released, right = [], private_gradient.add_seeded_noise

    def recording(*arguments):
        right(*arguments)
        released.append(arguments[-1].copy())

    monkeypatch.setattr(private_gradient, "add_seeded_noise", recording)
    sites = PrivateSites(*rows, seeded(1.0), copies=3)
    np.testing.assert_allclose(sites.slopes, released[-1][:, 0], rtol=1e-9)
    rng = np.random.default_rng(1)
    while sites.released < sites.rounds:
        sites.move_to(rng.normal(size=(3, sites.width)))
        np.testing.assert_allclose(sites.slopes, released[-1][:, 0], rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match=f"all {sites.rounds} slopes"):
        sites.move_to(np.zeros(sites.width))
    assert len(released) == sites.rounds


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("width", [1, 3])
def test_no_model_makes_a_row_count_more_than_its_norm(rows, value, width):
    """What a neighbour sends may be anything: models that are not finite must not make a slope larger."""
    block = PrivateSites(*rows, seeded(1.0)).block
    block.flat[0] = np.where(np.arange(6) < width, value, 0.0)
    slopes = np.empty_like(block.w)
    private_gradient.mean_slopes(0, 1, block.alive, block.w, block.rows, slopes)
    assert np.linalg.norm(slopes) <= 1.0


def test_best_guess_is_that_of_the_attack_on_gaussian_scores():
    budget = DifferentialPrivacy(1.0)
    scores = np.random.default_rng(0).normal(size=200_000)
    assert best_guess(budget) == pytest.approx((scores < budget.mu / 2).mean(), abs=3e-3)
    assert best_guess(budget) < best_guess(budget, rows=5) < 1.0


def test_the_bound_of_mu_holds_at_its_confidence():
    """Of many bounds at 90 %, about a tenth may be above the truth; it is never far off."""
    rng = np.random.default_rng(0)
    bounds = [mu_lower_bound(rng.normal(size=2000), rng.normal(1.0, size=2000), 0.9) for _ in range(200)]
    assert np.mean(np.array(bounds) > 1.0) <= 0.1
    assert np.median(bounds) > 0.85
    assert mu_lower_bound(np.zeros(100), np.zeros(100)) == 0.0
    assert mu_lower_bound(np.zeros(1000), np.ones(1000)) > 2.0 * norm.ppf(0.98)
