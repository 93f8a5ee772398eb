"""The lowest layer by itself: draws without state, row primitives, the order of mail, and threads."""

import os
import pickle
import threading
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from gadget_svm.kernels import ThreadTeam, add_row, compiled, dot_row, draw, scale, sq_norm, sq_norm_row, threads
from gadget_svm.kernels import counter_rng as purposes
from gadget_svm.kernels import rows as row_kernels
from gadget_svm.kernels.counter_rng import uniform
from gadget_svm.kernels.gossip import find, order_messages, pick_edge
from gadget_svm.kernels.rows import hash_rows
from gadget_svm.kernels.vectors import _sum_in_lanes, add_sorted_row, dot_run, dot_sorted_row, weighted_sum

M64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
BIG = st.integers(0, 2**62)


def mixed(z):
    """The finaliser of SplitMix64 in Python's own integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


@given(seed=BIG, node=BIG, time=BIG, purpose=st.integers(0, 7))
def test_a_draw_is_this_function_of_seed_node_time_and_purpose(seed, node, time, purpose):
    """Written out, so that no release may change what a seed means without saying so."""
    z = mixed((seed + GOLDEN * (purpose + 1)) & M64)
    z = mixed((z + GOLDEN * (node + 1)) & M64)
    z = mixed((z + GOLDEN * (time + 1)) & M64)
    assert draw(seed, node, time, purpose) == (z >> 11) * 2.0**-53
    assert 0 <= draw(seed, node, time, purpose) < 1


def test_draws_are_uniform_and_unrelated_across_every_argument():
    grid = np.arange(20_000)
    zero = np.zeros_like(grid)
    columns = [
        uniform(1, grid, zero, 0),
        uniform(1, zero, grid, 0),
        uniform(1, zero, grid, 1),
        uniform(2, zero, grid, 0),
        np.array([draw(seed, 0, 0, 0) for seed in range(20_000)]),
    ]
    for u in columns:
        assert abs(u.mean() - 0.5) < 0.01
        assert np.histogram(u, 20, (0, 1))[0].min() > 850
    assert np.abs(np.corrcoef(columns) - np.eye(5)).max() < 0.03


def test_no_two_purposes_share_a_number():
    names = ["EXAMPLE", "NEIGHBOUR", "ROLE", "ANSWER", "LOSS", "DELAY", "CHURN", "BOUNCE"]
    assert len({getattr(purposes, name) for name in names}) == len(names)


@given(n=st.integers(0, 40), seed=st.integers(0, 2**32), factor=st.floats(-1e3, 1e3))
def test_row_primitives_are_their_formulas(n, seed, factor):
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=n) * (rng.random(n) < 0.5), rng.normal(size=n)
    row = sp.csr_matrix(x[None])
    assert dot_row(w, row.indices, row.data, 0, row.nnz) == pytest.approx(w @ x, abs=1e-12)
    assert sq_norm_row(row.data, 0, row.nnz) == pytest.approx(x @ x)
    assert sq_norm(w) == pytest.approx(w @ w)
    changed = w.copy()
    add_row(changed, factor, row.indices, row.data, 0, row.nnz)
    np.testing.assert_allclose(changed, w + factor * x)
    scale(changed, 0.5)
    np.testing.assert_allclose(changed, (w + factor * x) / 2)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 257])
def test_a_dot_product_of_a_run_is_summed_in_lanes(count):
    w, data = np.random.default_rng(count).normal(size=(2, count + 5))
    whole = count - count % 8
    expected = _sum_in_lanes(w, data, 2, 3, whole)
    for j in range(whole, count):
        expected += w[2 + j] * data[3 + j]
    assert dot_run(w, data, 2, 3, count) == expected  # the same bits


@given(places=st.sets(st.integers(0, 40), max_size=41), run=st.integers(0, 41), seed=st.integers(0, 99))
def test_sorted_rows_with_and_without_gaps_are_their_formulas(places, run, seed):
    """Rows without gaps are read without their indices."""
    rng = np.random.default_rng(seed)
    for features in (sorted(places), range(run), range(41 - run, 41)):
        indices, w = np.array([7, *features, 9], dtype=np.uint32), rng.normal(size=42)
        data, hi = rng.normal(size=len(indices)), len(indices) - 1
        assert dot_sorted_row(w, indices, data, 1, hi) == pytest.approx(w[indices[1:hi]] @ data[1:hi], abs=1e-12)
        wanted = w.copy()
        add_row(wanted, 0.3, indices, data, 1, hi)
        add_sorted_row(w, 0.3, indices, data, 1, hi)
        np.testing.assert_array_equal(w, wanted)


@given(n=st.integers(1, 6), width=st.integers(0, 9), seed=st.integers(0, 2**32))
def test_a_weighted_sum_is_taken_in_order(n, width, seed):
    rng = np.random.default_rng(seed)
    factors, vectors = rng.random(n), rng.normal(size=(n, width))
    wanted = np.zeros(width)
    for factor, vector in zip(factors, vectors, strict=True):
        wanted = wanted + factor * vector
    np.testing.assert_array_equal(weighted_sum(factors, vectors), wanted)


@given(
    messages=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 5)), max_size=40),
    first=st.integers(0, 9), count=st.integers(1, 5),
)  # fmt: skip
def test_mail_is_absorbed_by_receiver_then_sender_then_sequence(messages, first, count):
    receiver, sender, seq = (np.array([m[i] for m in messages], dtype=np.int64) for i in range(3))
    order, start = order_messages(receiver, sender, seq, first, count)
    ours = [m for m in range(len(messages)) if first <= receiver[m] < first + count]
    assert order.tolist() == sorted(ours, key=lambda m: messages[m])
    for i in range(count):
        assert (receiver[order[start[i] : start[i + 1]]] == first + i).all()
    assert start[-1] == len(ours)


@given(
    shares=st.lists(st.floats(0.01, 1), min_size=1, max_size=8), rest=st.floats(0, 1), u=st.floats(0, 0.999999)
)  # fmt: skip
def test_the_edge_drawn_holds_u_in_its_stretch(shares, rest, u):
    """Above the last stretch, where there is such a rest, none is drawn."""
    table = np.cumsum(shares) / (np.sum(shares) + rest)
    padded = np.r_[0.3, table, 0.1]  # the edges of other nodes before and after
    e = pick_edge(padded, 1, 1 + len(table), u)
    if u >= table[-1]:
        assert e == -1
    else:
        assert (table[e - 2] if e > 1 else 0.0) <= u < table[e - 1]


@given(ids=st.sets(st.integers(0, 30), max_size=12), wanted=st.integers(0, 30))
def test_find_finds_what_is_there(ids, wanted):
    padded = np.array([99, *sorted(ids), 0], dtype=np.int64)
    at = find(padded, 1, 1 + len(ids), wanted)
    assert (at >= 0) == (wanted in ids)
    assert at < 0 or padded[at] == wanted


def test_a_rows_hash_ignores_stored_zeros_and_the_order_of_entries():
    def hashed(columns, values, label=0, seed=0):
        data, indices = np.array(values), np.array(columns, dtype=np.int32)
        indptr = np.array([0, len(values)], dtype=np.int32)
        return int(hash_rows(indptr, indices, data.view(np.uint64), np.array([label], dtype=np.int32), seed)[0])

    one = hashed([0, 2], [1.5, -2.0])
    assert one == hashed([2, 0], [-2.0, 1.5]) == hashed([0, 1, 2, 3], [1.5, 0.0, -2.0, -0.0])
    others = [hashed([0, 2], [-2.0, 1.5]), hashed([0, 1], [1.5, -2.0]), hashed([0, 2], [1.5, -2.0], label=1),
              hashed([0, 2], [1.5, -2.0], seed=1), hashed([0], [1.5])]  # fmt: skip
    assert len({one, *others}) == 6


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=20), piece=st.integers(1, 30), seed=st.integers(0, 2**31)
)
def test_a_rows_hash_does_not_depend_on_the_rows_around_it(lengths, piece, seed):
    rng, indptr = np.random.default_rng(seed), np.cumsum([0, *lengths]).astype(np.int32)
    indices, bits = rng.integers(0, 50, indptr[-1]).astype(np.int32), rng.normal(size=indptr[-1]).view(np.uint64)
    label = rng.integers(0, 3, len(lengths)).astype(np.int32)
    with mock.patch.object(row_kernels, "HASH_ENTRIES", piece):
        run_in_rounds = hash_rows(indptr, indices, bits, label, seed)
    for r, (lo, hi) in enumerate(pairwise(indptr)):
        alone = hash_rows(np.array([0, hi - lo]), indices[lo:hi], bits[lo:hi], label[r : r + 1], seed)
        assert alone[0] == run_in_rounds[r]


@compiled
def mark(lo, hi, out):
    """One more at lo:hi."""
    for i in range(lo, hi):
        out[i] += 1


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_a_team_does_every_node_once(size, count):
    team, out = ThreadTeam(size, worth_sharing=0), np.zeros(count)
    team.run(mark, count, 1, out)
    team.close()
    np.testing.assert_array_equal(out, 1)


def test_small_work_stays_in_one_thread_and_large_work_does_not():
    team, seen = ThreadTeam(2, worth_sharing=100), []

    def note(lo, hi):
        seen.append((lo, hi, threading.current_thread() is threading.main_thread()))

    team.run(note, 10, 9)
    assert seen == [(0, 10, True)]
    team.run(note, 10, 10)
    assert sorted(seen[1:]) == [(0, 5, True), (5, 10, False)]
    team.close()


def test_an_error_in_a_thread_is_raised():
    def fails(lo, hi):  # noqa: ARG001
        if lo > 0:
            raise RuntimeError("in the other thread")

    team = ThreadTeam(2, worth_sharing=0)
    with pytest.raises(RuntimeError, match="in the other thread"):
        team.run(fails, 4, 1)
    team.close()


def test_a_team_that_worked_can_be_pickled_and_closed_and_used_again():
    before = set(threading.enumerate())
    team, out = ThreadTeam(2, worth_sharing=0), np.zeros(4)
    team.run(mark, 4, 1, out)
    twin = pickle.loads(pickle.dumps(team))
    twin.run(mark, 4, 1, out)
    for each in (team, twin):
        each.close()
        each.close()
    team.run(mark, 4, 1, out)
    team.close()
    np.testing.assert_array_equal(out, 3)
    assert set(threading.enumerate()) <= before


def test_threads_are_counted_as_scikit_learn_counts_jobs(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setattr(threads, "_limits_of_pools", list)  # those of this machine's cores
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    sizes = {jobs: ThreadTeam.of(jobs).size for jobs in (None, -1, -2, -9, 1, 3)}
    assert sizes == {None: 4, -1: 4, -2: 3, -9: 1, 1: 1, 3: 3}
    with pytest.raises(ValueError, match="no thread at all"):
        ThreadTeam.of(0)
