"""The scale: one for all sites, from sums over their rows."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from gadget_svm.peers.training import scale_agreement
from gadget_svm.peers.training.scale import Scale, ScalingError, common_scale, statistics
from gadget_svm.peers.training.scale_agreement import digest_of
from gadget_svm.peers.wire.messages import SiteStatistics as Entry
from gadget_svm.peers.wire.messages import Statistics
from support.training_kit import rows, study


def agreement(kind, sites, name, X):
    return scale_agreement.ScaleAgreement(study(d=X.shape[1], scaling=kind, scaling_sites=sites), name, X)


def test_no_scaling_is_settled_at_once():
    X, _ = rows()
    found = agreement("none", 0, "a", X)
    assert found.scale
    assert not found.hear(Statistics())
    np.testing.assert_array_equal(found.scale.apply(X).toarray(), X.toarray())


@pytest.mark.parametrize("kind", ["max-abs", "deviation"])
def test_the_scale_is_that_of_the_pooled_rows_in_any_order_of_hearing(kind):
    shards = [rows(25 + 5 * i, seed=i)[0] for i in range(3)]
    found = [agreement(kind, 3, name, X) for name, X in zip("abc", shards, strict=True)]
    assert not any(each.scale for each in found)
    for i, j in ((0, 1), (2, 1), (1, 2), (0, 2), (1, 0), (2, 1), (0, 2)):
        found[i].hear(found[j].message())
    pooled = sp.vstack(shards).toarray()
    wanted = np.abs(pooled).max(axis=0) if kind == "max-abs" else pooled.std(axis=0)
    for each in found:
        assert each.digest == found[0].digest != b""
        np.testing.assert_array_equal(each.scale, found[0].scale)
        np.testing.assert_allclose(each.scale.divisor, wanted, rtol=1e-10)
        assert not each.scale.shift.any()  # means near zero


def test_hearing_twice_changes_nothing_and_a_late_site_adopts_what_was_frozen():
    shards = [rows(seed=i)[0] for i in range(3)]
    a, b, late = (agreement("max-abs", 2, name, X) for name, X in zip("abc", shards, strict=True))
    assert a.hear(b.message())
    assert not a.hear(b.message())
    assert late.hear(a.message())
    assert late.digest == a.digest
    assert set(late.entries) == {"a", "b"}


def test_of_two_settled_sets_the_lower_digest_wins_everywhere():
    shards = [rows(seed=i)[0] for i in range(4)]
    a, b, c, d = (agreement("max-abs", 2, name, X) for name, X in zip("abcd", shards, strict=True))
    a.hear(b.message()), c.hear(d.message())
    lower = min(a.digest, c.digest)
    first, second = a.message(), c.message()
    a.hear(second), c.hear(first)
    assert a.digest == c.digest == lower
    np.testing.assert_array_equal(a.scale, c.scale)


def test_statistics_that_do_not_fit_are_refused():
    X, _ = rows()
    found = agreement("deviation", 2, "a", X)
    with pytest.raises(ScalingError, match="b lack"):
        found.hear(Statistics((statistics("max-abs", "b", X),)))
    entry = statistics("deviation", "b", X)
    with pytest.raises(ScalingError, match="b have a negative"):
        found.hear(Statistics((replace(entry, spread=-entry.spread),)))
    with pytest.raises(ScalingError, match="digest"):
        found.hear(Statistics((statistics("deviation", "b", X),), b"x" * 32))
    with pytest.raises(ScalingError, match="b lack"):
        found.hear(Statistics((replace(statistics("deviation", "b", X), rows=0.0),)))
    assert not found.scale
    with pytest.raises(ScalingError, match="sites"):
        agreement("deviation", 0, "a", X)


@pytest.mark.parametrize("value", [0.1, 0.3, 3.3, -5.0, 1e9, 1e-30, 0.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_feature_that_never_varies_has_no_monstrous_values(value, intercept):
    """Whatever rounding makes of its mean, at sites of any size."""
    entries = []
    for name, n in zip("abc", (171, 1_003, 77), strict=True):
        X = sp.csr_matrix(np.hstack([np.full((n, 1), value), rows(n, 3)[0].toarray()]))
        entries.append(statistics("deviation", name, X))
    scale = common_scale("deviation", entries, intercept)
    shifted = intercept and value != 0.0
    assert scale.divisor[0] == pytest.approx(abs(value) if shifted else 1.0)
    assert scale.shift[0] == (pytest.approx(value) if shifted else 0.0)
    late = sp.csr_matrix((1, 4))  # of a site that comes later and lacks it
    assert scale.apply(late)[0, 0] == pytest.approx(-np.sign(value) if shifted else 0.0)
    assert common_scale("max-abs", [statistics("max-abs", "a", X)]).divisor[0] == (abs(value) or 1.0)


def test_a_little_variation_beside_a_large_mean_is_seen():
    rng = np.random.default_rng(0)
    parts = [1.7e9 + rng.normal(size=(n, 1)) for n in (40, 55, 30)]
    scale = common_scale(
        "deviation", [statistics("deviation", "abc"[i], sp.csr_matrix(x)) for i, x in enumerate(parts)]
    )
    pooled = np.vstack(parts)
    np.testing.assert_allclose(scale.divisor, pooled.std(axis=0), rtol=1e-6)
    assert abs(scale.apply(sp.csr_matrix(pooled)).toarray().mean()) < 1e-6


def test_others_statistics_do_not_make_a_sparse_site_dense(monkeypatch):
    """Not beyond measure; and what was known before stays."""
    monkeypatch.setattr(scale_agreement, "ZEROS_STORED", 100)
    dense = sp.csr_matrix(np.random.default_rng(0).normal(9.0, 1.0, (40, 12)))
    sparse = sp.random(40, 12, 0.05, format="csr", random_state=np.random.default_rng(1))
    a, b, late = (agreement("deviation", 2, name, X) for name, X in zip("abc", (dense, dense, sparse), strict=True))
    a.hear(b.message())
    with pytest.raises(ScalingError, match=r"456 zeros of this site .* besides its 24 values, .*max-abs"):
        late.hear(a.message())
    assert not late.scale
    assert set(late.entries) == {"c"}


@pytest.mark.parametrize(("kind", "value"), [("deviation", 1e55), ("max-abs", 1e120), ("deviation", 1e200)])
def test_values_that_statistics_cannot_tell_are_refused_by_name(kind, value):
    X = rows()[0].toarray()
    X[3, 4] = value
    with pytest.raises(ScalingError, match=f"feature 5 are too large for scaling '{kind}'"):
        agreement(kind, 3, "a", sp.csr_matrix(X))


MATRICES = st.tuples(st.integers(1, 12), st.integers(1, 5), st.floats(0.05, 1.0), st.integers(0, 2**32 - 1))


@given(MATRICES)
def test_scaling_is_that_of_dense_rows(shape):
    """Also where a value that was not stored is shifted; nothing else becomes less sparse."""
    n, d, density, seed = shape
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, density, format="csr", random_state=rng)
    scale = Scale(rng.uniform(0.1, 9.0, d), rng.normal(size=d) * (rng.random(d) < 0.5))
    found = scale.apply(X)
    np.testing.assert_allclose(found.toarray(), (X.toarray() - scale.shift) / scale.divisor, atol=1e-14)
    assert found.has_sorted_indices
    stored = np.bincount(found.indices, minlength=d)
    np.testing.assert_array_equal(stored, np.where(scale.shift != 0.0, n, np.bincount(X.indices, minlength=d)))
    weights, intercept = rng.normal(size=(2, d)), rng.normal(size=2)
    coef, own = scale.undo(weights, intercept)
    np.testing.assert_allclose(X @ coef.T + own, found @ weights.T + intercept, atol=1e-9)


@given(MATRICES, st.floats(-100.0, 100.0))
def test_what_is_shifted_has_at_least_half_its_values(shape, offset):
    n, d, density, seed = shape
    X = sp.random(n, d, density, format="csr", random_state=np.random.default_rng(seed))
    X.data += offset
    scale = common_scale("deviation", [statistics("deviation", "a", X)])
    assert scale.apply(X).nnz <= 2 * X.nnz
    assert not common_scale("deviation", [statistics("deviation", "a", X)], shifts=False).shift.any()


def test_the_digest_is_of_the_set_not_of_its_order():
    one, two = Entry("a", 3.0, largest=np.ones(2)), Entry("b", 4.0, largest=np.ones(2))
    assert digest_of([one, two]) == digest_of([two, one])
    assert digest_of([one, two]) != digest_of([one, replace(two, rows=5.0)])
