"""The scaler: one scale for all sites from sums over their rows, and peers that learn by it."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
from gadget_svm.estimator.model_file import load_model
from gadget_svm.peers import scale as scales
from gadget_svm.peers import scaling
from gadget_svm.peers.messages import Entry, Statistics
from gadget_svm.peers.scale import Scale, ScalingError, common_scale, statistics
from gadget_svm.peers.scaling import Scaling, digest_of
from support.peer_kit import goes_on, living, rows, until


def test_no_scaling_is_settled_at_once():
    X, _ = rows()
    found = Scaling("none", 0, "a", X)
    assert found.settled
    assert not found.hear(Statistics("b"))
    np.testing.assert_array_equal(found.scale.apply(X).toarray(), X.toarray())


@pytest.mark.parametrize("kind", ["max-abs", "deviation"])
def test_the_scale_is_that_of_the_pooled_rows_in_any_order_of_hearing(kind):
    shards = [rows(25 + 5 * i, seed=i)[0] for i in range(3)]
    found = [Scaling(kind, 3, name, X) for name, X in zip("abc", shards, strict=True)]
    assert not any(each.settled for each in found)
    for i, j in ((0, 1), (2, 1), (1, 2), (0, 2), (1, 0), (2, 1), (0, 2)):
        found[i].hear(found[j].message())
    pooled = sp.vstack(shards).toarray()
    wanted = np.abs(pooled).max(axis=0) if kind == "max-abs" else pooled.std(axis=0)
    for each in found:
        assert each.digest == found[0].digest != b""
        np.testing.assert_array_equal(each.scale, found[0].scale)
        np.testing.assert_allclose(each.scale.divisor, wanted, rtol=1e-10)
        assert not each.scale.shift.any()  # means near zero


def test_hearing_twice_changes_nothing_and_a_late_one_takes_over_what_was_settled():
    shards = [rows(seed=i)[0] for i in range(3)]
    a, b, late = (Scaling("max-abs", 2, name, X) for name, X in zip("abc", shards, strict=True))
    assert a.hear(b.message())
    assert not a.hear(b.message())
    assert late.hear(a.message())
    assert late.digest == a.digest
    assert set(late.entries) == {"a", "b"}


def test_of_two_settled_sets_the_lower_digest_wins_everywhere():
    shards = [rows(seed=i)[0] for i in range(4)]
    a, b, c, d = (Scaling("max-abs", 2, name, X) for name, X in zip("abcd", shards, strict=True))
    a.hear(b.message()), c.hear(d.message())
    lower = min(a.digest, c.digest)
    first, second = a.message(), c.message()
    a.hear(second), c.hear(first)
    assert a.digest == c.digest == lower
    np.testing.assert_array_equal(a.scale, c.scale)


def test_statistics_that_do_not_fit_are_refused():
    X, _ = rows()
    found = Scaling("deviation", 2, "a", X)
    with pytest.raises(ScalingError, match="b lack"):
        found.hear(Statistics("b", (statistics("max-abs", "b", X),)))
    entry = statistics("deviation", "b", X)
    with pytest.raises(ScalingError, match="b have a negative"):
        found.hear(Statistics("b", (replace(entry, spread=-entry.spread),)))
    with pytest.raises(ScalingError, match="digest"):
        found.hear(Statistics("b", (statistics("deviation", "b", X),), b"x" * 32))
    with pytest.raises(ScalingError, match="b lack"):
        found.hear(Statistics("b", (replace(statistics("deviation", "b", X), rows=0.0),)))
    assert not found.settled
    with pytest.raises(ScalingError, match="sites"):
        Scaling("deviation", 0, "a", X)


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


def test_what_is_written_out_is_so_in_pieces_too(monkeypatch):
    X = sp.random(50, 6, 0.3, format="csr", random_state=np.random.default_rng(0))
    scale = Scale(np.full(6, 2.0), np.array([1.0, 0.0, 3.0, 0.0, 0.0, 1.0]))
    whole = scale.apply(X)
    monkeypatch.setattr(scales, "PIECE", 20)
    pieces = scale.apply(X)
    for one, other in ((whole.indptr, pieces.indptr), (whole.indices, pieces.indices), (whole.data, pieces.data)):
        np.testing.assert_array_equal(one, other)


def test_others_statistics_do_not_make_a_sparse_site_dense(monkeypatch):
    """Not beyond measure; and what was known before stays."""
    monkeypatch.setattr(scaling, "FILLING", 100)
    dense = sp.csr_matrix(np.random.default_rng(0).normal(9.0, 1.0, (40, 12)))
    sparse = sp.random(40, 12, 0.05, format="csr", random_state=np.random.default_rng(1))
    a, b, late = (Scaling("deviation", 2, name, X) for name, X in zip("abc", (dense, dense, sparse), strict=True))
    a.hear(b.message())
    with pytest.raises(ScalingError, match=r"456 zeros of this site .* beside its 24 values, .*max-abs"):
        late.hear(a.message())
    assert not late.settled
    assert set(late.entries) == {"c"}


@pytest.mark.parametrize(("kind", "value"), [("deviation", 1e55), ("max-abs", 1e120), ("deviation", 1e200)])
def test_values_that_statistics_cannot_tell_are_refused_by_name(kind, value):
    X = rows()[0].toarray()
    X[3, 4] = value
    with pytest.raises(ScalingError, match=f"feature 5 are too large for scaling = '{kind}'"):
        Scaling(kind, 3, "a", sp.csr_matrix(X))


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


@pytest.mark.parametrize("kind", ["max-abs", "deviation"])
def test_three_sites_settle_on_one_scale_and_a_late_one_joins_it(town, kind):
    """And the model that is exported is for rows as they are."""
    stretch = np.geomspace(0.01, 100.0, 12)
    datas = [(sp.csr_matrix(X.multiply(stretch)), y) for X, y in (rows(60, seed=i) for i in range(4))]

    async def main():
        a, b, c = town.peers("abc", datas[:3], scaling=kind, sites=3)
        assert not any(peer.learner for peer in (a, b, c))
        async with living(a, b, c):
            await until(lambda: all(peer.ticks > 20 for peer in (a, b, c)))
            late = town.peer("d", datas[3], join=(a.address,), scaling=kind, sites=3)
            async with living(late):
                await until(lambda: late.ticks > 20 and all("d" in peer.mailbox.heard for peer in (a, b, c)))
                pooled = sp.vstack([X for X, _ in datas[:3]]).toarray()
                wanted = np.abs(pooled).max(axis=0) if kind == "max-abs" else pooled.std(axis=0)
                for peer in (a, b, c, late):
                    assert peer.run == a.run
                    np.testing.assert_array_equal(peer.scaling.scale, a.scaling.scale)
                np.testing.assert_allclose(a.scaling.scale.divisor, wanted, rtol=1e-7)
            await goes_on(a, 100)  # who leaves stirs the others up for a few ticks
        model = load_model(a.config.peer.model)
        X, y = datas[1]
        scaled = a.learner._predicted(sp.hstack([a.scaling.scale.apply(X), np.ones((60, 1))]) @ a.learner.model().T)
        np.testing.assert_array_equal(model.predict(X), np.where(scaled > 0, 1, -1))
        assert (model.predict(X) == y).mean() > 0.8

    asyncio.run(main())


def with_a_year(n, seed):
    """Rows that all but point the same way."""
    X, y = rows(n, seed=seed)
    when = np.random.default_rng(seed).integers(2015, 2026, (n, 1)).astype(np.float64)
    return sp.csr_matrix(np.hstack([X.toarray(), when])), y


def test_rows_that_all_but_point_the_same_way_are_learned_from(town):
    datas = [with_a_year(60, seed) for seed in range(3)]

    async def main():
        peers = town.peers("abc", datas, scaling="deviation", sites=3, features=13)
        async with living(*peers):
            await until(lambda: all(json.loads(peer.status())["gap_estimate"] is not None for peer in peers))
            await until(lambda: all(json.loads(peer.status())["gap_estimate"] < 0.01 for peer in peers))
        for peer in peers:
            assert "letters" not in peer.trouble
            model = load_model(peer.config.peer.model)
            assert np.mean([model.score(X, y) for X, y in datas]) > 0.9

    asyncio.run(main())


def test_where_nothing_may_leave_it_is_said_and_no_gap_is_told(town):
    datas = [with_a_year(60, seed) for seed in range(2)]

    async def main():
        a, b = town.peers("ab", datas, features=13)
        async with living(a, b):
            await until(lambda: "letters" in a.trouble and "letters" in b.trouble)
            for peer in (a, b):
                found = json.loads(peer.status())
                assert found["gap_estimate"] is None
                assert found["withheld"] >= 100
                assert "rows nearly alike" in found["trouble"]["letters"]

    asyncio.run(main())


def test_one_who_cannot_take_a_scale_over_says_so_and_goes_on(town, monkeypatch):
    monkeypatch.setattr(scaling, "FILLING", 100)
    dense = [sp.csr_matrix(np.random.default_rng(seed).normal(9.0, 1.0, (60, 12))) for seed in range(2)]
    sparse = sp.random(60, 12, 0.1, format="csr", random_state=np.random.default_rng(2))

    async def main():
        a, b = town.peers("ab", [(X, rows(60, seed=i)[1]) for i, X in enumerate(dense)], scaling="deviation", sites=2)
        async with living(a, b):
            await until(lambda: a.ticks > 20 and b.ticks > 20)
            late = town.peer("c", (sparse, rows(60)[1]), join=(a.address,), scaling="deviation", sites=2)
            async with living(late):
                await until(lambda: "zeros of this site" in late.trouble.get("scale", ""))
                await goes_on(a, 50)
                assert late.learner is None
                assert a.run == b.run

    asyncio.run(main())


def test_one_more_scale_begins_learning_anew_and_nothing_else(town):
    """Two pairs settle apart; then one who knows both brings them together."""
    datas = [rows(60, seed=seed) for seed in range(5)]

    async def main():
        a, b = town.peers("ab", datas[:2], scaling="deviation", sites=2)
        c, d = town.peers("cd", datas[2:4], scaling="deviation", sites=2)
        async with living(a, b, c, d):
            await until(lambda: all(peer.ticks > 50 for peer in (a, b, c, d)))
            assert a.run == b.run != c.run == d.run
            for peer in (a, b, c, d):  # as by rows that all but point the same way
                peer.discretion.withheld += 1000
            lower = min(a.scaling.digest, c.scaling.digest)
            e = town.peer("e", datas[4], join=(a.address, c.address), scaling="deviation", sites=2)
            async with living(e):
                everyone = (a, b, c, d, e)
                await until(lambda: all(peer.scaling.digest == lower for peer in everyone))
                await until(lambda: len({peer.run for peer in everyone}) == 1)
                for peer in everyone:
                    await goes_on(peer, 50)
                    assert json.loads(peer.status())["state"] == "learning"
                await until(
                    lambda: all(
                        (found := json.loads(peer.status())["gap_estimate"]) and found < 0.01 for peer in everyone
                    )
                )

    asyncio.run(main())


def test_a_trouble_that_is_over_is_told_no_more(town):
    async def main():
        a, b = town.peers("ab", scaling="deviation", sites=2)
        async with living(a, b):
            await until(lambda: a.ticks > 5 and b.ticks > 5)
            a.complain("scaling", "b does not answer")
            await until(lambda: "scaling" not in a.trouble)

    asyncio.run(main())
