"""Partitions of rows: every row once, every node a row, by content and not by position."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm.data.partition import SCHEMES, assign_sites, partition_by_site, partition_evenly


def table(n, seed, width=3):
    rng = np.random.default_rng(seed)
    X = sp.csr_matrix(rng.normal(size=(n, width)) * (rng.random((n, width)) < 0.7))
    return X, rng.integers(0, 2, n).astype(np.int32)


def owned(shares):
    """The rows of each node."""
    return [shares.order[a:b] for a, b in zip(shares.start[:-1], shares.start[1:], strict=True)]


@given(n=st.integers(1, 60), nodes=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_even_shares_have_every_row_once(n, nodes, seed):
    shares = partition_evenly(*table(n, seed), nodes, seed)
    np.testing.assert_array_equal(np.sort(shares.order), np.arange(n))
    assert shares.sizes.max() - shares.sizes.min() <= 1
    assert shares.sizes.sum() == n


@given(n=st.integers(2, 40), nodes=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_order_of_rows_does_not_matter(n, nodes, seed):
    X, label = table(n, seed)
    turn = np.random.default_rng(seed + 1).permutation(n)
    one, other = partition_evenly(X, label, nodes, seed), partition_evenly(X[turn], label[turn], nodes, seed)
    for a, b in zip(owned(one), owned(other), strict=True):
        np.testing.assert_array_equal(X[a].toarray(), X[turn][b].toarray())


@settings(max_examples=50)
@given(times=st.lists(st.integers(0, 9), min_size=3, max_size=15), nodes=st.integers(1, 6), seed=st.integers(0, 99))
def test_weight_k_is_k_rows(times, nodes, seed):
    """Whole weights are repetitions: each node owns the same rows, as often."""
    times = np.array([1, *times])
    X, label = table(len(times), seed)
    repeated = np.repeat(np.arange(len(times)), times)
    weighted = partition_evenly(X, label, nodes, seed, times.astype(float))
    plain = partition_evenly(X[repeated], label[repeated], nodes, seed)
    np.testing.assert_array_equal(weighted.sizes, plain.sizes)
    for node, rows in enumerate(owned(plain)):
        counted = np.zeros(len(times))
        np.add.at(counted, repeated[rows], 1)
        mine = slice(weighted.start[node], weighted.start[node + 1])
        found = np.zeros(len(times))
        np.add.at(found, weighted.order[mine], weighted.times[mine] if len(weighted.times) else 1)
        np.testing.assert_array_equal(found, counted)


def test_fractional_and_zero_weights():
    X, label = table(10, 0)
    times = np.linspace(0, 0.9, 10)
    shares = partition_evenly(X, label, 3, 0, times)
    np.testing.assert_array_equal(np.sort(shares.order), np.arange(1, 10))
    np.testing.assert_array_equal(shares.times, times[shares.order])
    assert shares.sizes.sum() == pytest.approx(times.sum())


def test_huge_weights_are_no_counts():
    X, label = table(6, 0)
    shares = partition_evenly(X, label, 2, 0, np.full(6, 1e25))
    np.testing.assert_allclose(shares.sizes, 3e25)


def test_seed_changes_the_partition():
    X, label = table(50, 0)
    one, other = partition_evenly(X, label, 2, 0), partition_evenly(X, label, 2, 1)
    assert set(owned(one)[0]) != set(owned(other)[0])


@given(sites=st.lists(st.sampled_from(["b", "a", "c"]), min_size=1, max_size=30))
def test_sites_are_sorted(sites):
    shares, names = partition_by_site(np.array(sites, dtype=object))
    assert names == sorted(set(sites))
    for name, rows in zip(names, owned(shares), strict=True):
        assert rows.tolist() == [r for r, site in enumerate(sites) if site == name]


def test_kinds_of_sites():
    assert partition_by_site([3, "x", 3, "b"])[1] == [3, "x", "b"]  # no order: as they appear
    assert partition_by_site([("eu", 2), ("eu", 1)])[1] == [("eu", 1), ("eu", 2)]
    shares, names = partition_by_site([2, 2, 0], known=[0, 1, 2])
    assert names == [0, 1, 2]
    assert [rows.tolist() for rows in owned(shares)] == [[2], [], [0, 1]]
    with pytest.raises(ValueError, match="unknown site 9: the nodes of this network are"):
        partition_by_site([9], known=[0, 1])
    with pytest.raises(ValueError, match="missing values"):
        partition_by_site(np.array([1.0, np.nan]))


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
@settings(max_examples=25)
@given(n=st.integers(1, 60), nodes=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_every_scheme(scheme, n, nodes, seed):
    n = max(n, nodes)
    y = np.random.default_rng(seed).integers(0, 3, n)
    options = {"sizes": np.arange(1, nodes + 1)} if scheme == "sizes" else {}
    site = assign_sites(y, nodes, scheme, seed=seed, **options)
    assert site.shape == (n,)
    assert set(site) == set(range(nodes))
    np.testing.assert_array_equal(site, assign_sites(y, nodes, scheme, seed=seed, **options))


def test_sizes():
    counts = np.bincount(assign_sites(np.zeros(1000), 3, "sizes", sizes=[1, 2, 7]))
    np.testing.assert_allclose(counts, [100, 200, 700], atol=3)
    assert counts.sum() == 1000


def test_label_skew():
    y = np.repeat([0, 1], 500)

    def skew(alpha):
        site = assign_sites(y, 5, "label-skew", seed=1, alpha=alpha)
        return np.mean([abs(y[site == node].mean() - 0.5) for node in range(5)])

    assert skew(0.05) > 0.3 > 0.1 > skew(1000)


def test_sorted():
    y = np.array(list("abab" * 25))
    site = assign_sites(y, 4, "sorted")
    assert np.bincount(site).tolist() == [25] * 4
    assert [set(y[site == node]) for node in range(4)] == [{"a"}, {"a"}, {"b"}, {"b"}]


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((np.zeros(5), 6), {}, "6 nodes for 5 rows"),
        ((np.zeros(5), 0), {}, "0 nodes for 5 rows"),
        ((np.zeros(5), 2, "label-skw"), {}, "Did you mean 'label-skew'"),
        ((np.zeros(5), 2, "sizes"), {"sizes": [1, 2, 3]}, "2 positive numbers"),
        ((np.zeros(5), 2, "sizes"), {"sizes": [1, np.inf]}, "2 positive numbers"),
        ((np.zeros(5), 2, "sizes"), {"sizes": [1, 0]}, "2 positive numbers"),
        ((np.zeros(5), 2, "label-skew"), {"alpha": 0}, "alpha must be positive"),
        ((np.zeros(5), 2, "label-skew:0.1"), {}, "scheme='label-skew', alpha=0.1"),
    ],
)
def test_impossible_partition(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        assign_sites(*arguments, **options)


@pytest.mark.parametrize(
    ("scheme", "options", "sentence"),
    [
        ("label-skew", {"alph": 0.1}, "takes the options alpha, got alph"),
        ("even", {"alpha": 0.1}, "takes no options, got alpha"),
        ("sizes", {}, "needs sizes="),
    ],
)
def test_wrong_options(scheme, options, sentence):
    with pytest.raises(TypeError, match=sentence):
        assign_sites(np.zeros(5), 2, scheme, **options)
