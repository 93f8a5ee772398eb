"""`GadgetSVC(privacy=...)`: what is clipped, what is refused, and what the model says it spent."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification

pytest.importorskip("dp_accounting")
from tests.support.cli_kit import gadget

from gadget_svm import DifferentialPrivacy, GadgetSVC, Pdmm, load_model, save_model

X, y = make_classification(600, 6, class_sep=2.0, random_state=0)
SEEDED = DifferentialPrivacy(2.0, noise="seeded")


def private(**parameters):
    return GadgetSVC(3, random_state=0, **{"privacy": SEEDED, **parameters})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"algorithm": "pdmm"}, "cannot keep a privacy budget: use algorithm='auto'"),
        ({"algorithm": Pdmm()}, "cannot keep a privacy budget"),
        ({"class_weight": "balanced"}, "give a dict of constants"),
        ({"stopping": "gap"}, "looks at rows"),
        ({"stopping": "objective"}, "looks at rows"),
        ({"tol": 0.1}, "tol is for rules that look at rows"),
        ({"C": 1.0}, "with privacy, give lam"),
        ({"engine": "ray", "engine_options": {"restart": True}}, "'restart' repeats iterations"),
        (
            {"engine": "ray", "engine_options": {"resume": "auto", "checkpoint_dir": "runs"}},
            "'resume' repeats iterations",
        ),
        ({"privacy": DifferentialPrivacy(-1.0)}, "epsilon must be a positive number"),
    ],
)
def test_what_the_budget_does_not_cover_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        private(**parameters).fit(X, y)


def test_a_number_is_no_budget():
    with pytest.raises(TypeError, match=r"privacy is DifferentialPrivacy\(epsilon=1.0\) or None, got 1.0"):
        private(privacy=1.0).fit(X, y)


def test_batches_are_refused():
    with pytest.raises(ValueError, match="every batch would spend"):
        private().partial_fit(X, y, classes=[0, 1])


def test_what_was_spent():
    model = private().fit(X, y)
    assert model.privacy_["epsilon"] == pytest.approx(2.0)
    assert model.privacy_["rounds"] == model.privacy_["planned_rounds"] == model.n_iter_
    assert model.gap_bound_ is None
    early = private(max_iter=5).fit(X, y)
    assert 0 < early.privacy_["epsilon"] < 2.0
    assert not early.converged_
    assert GadgetSVC(3, random_state=0).fit(X, y).privacy_ is None


def test_longer_rows_count_as_rows_of_the_clip():
    """Scaling every row, the constant feature with it, changes nothing beyond the clip."""
    rng = np.random.default_rng(0)
    long = X * 100.0
    longer = long * rng.uniform(1, 50, size=(len(X), 1))
    first, second = (private(fit_intercept=False).fit(rows, y, sites=np.arange(600) % 3) for rows in (long, longer))
    np.testing.assert_allclose(first.coef_, second.coef_, rtol=1e-9)


def test_weights_do_not_change_what_a_row_may_add():
    """A row of weight 1e6 counts as the heaviest row that the clip allows."""
    heavy = np.where(np.arange(600) == 0, 1e6, 1.0)
    sites = np.arange(600) % 3
    plain, weighted = private().fit(X, y, sites=sites), private().fit(X, y, sample_weight=heavy, sites=sites)
    assert np.linalg.norm(plain.coef_ - weighted.coef_) < 0.2 * np.linalg.norm(plain.coef_)


def test_class_weights_are_constants_and_count():
    unequal = y | (np.arange(600) % 3 == 0)
    sites = np.arange(600) % 3
    plain = private().fit(X, unequal, sites=sites)
    weighted = private(class_weight={0: 1.0, 1: 0.1}).fit(X, unequal, sites=sites)
    assert (weighted.predict(X) == 0).mean() > (plain.predict(X) == 0).mean()


def test_clone_and_model_file_keep_the_budget(tmp_path):
    model = clone(private()).fit(X, y)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert again.privacy == SEEDED
    assert again.privacy_ == model.privacy_


def test_command_line(tmp_path):
    rows = tmp_path / "rows.csv"
    np.savetxt(rows, np.column_stack([y, X]), delimiter=",", header="label,a,b,c,d,e,f", comments="")
    done = gadget("train", rows, "--epsilon", "1.5", "--nodes", "3", "--json")
    summary = json.loads(done.stdout)
    assert summary["privacy"]["epsilon"] == pytest.approx(1.5)
    assert summary["privacy"]["noise"] == "secret"
    assert "epsilon 1.5" in summary["why"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clip", "2"], "--clip belongs to a privacy budget: add --epsilon"),
        (["--epsilon", "1", "--scale", "deviation"], "--scale deviation computes statistics of the rows"),
        (["--epsilon", "1", "-a", "gadget"], "cannot keep a privacy budget"),
    ],
)
def test_command_line_refuses(options, message):
    done = gadget("train", "digits", *options)
    assert done.exit_code == 2
    assert message in done.stderr
