"""What leaves a site: no vector that is sent, and no difference of two in a row, points along one of its rows."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm.algorithms import Gadget
from gadget_svm.peers.training.release_filter import (
    FORMER,
    SUPPRESSED_BEFORE_BLOCKED,
    SUPPRESSED_BEFORE_NOISE,
    ReleaseFilter,
)
from support.training_kit import SessionNet, as_push, learner, rows, session, step


def filter_of(X, outputs=1):
    return ReleaseFilter(X, outputs, 1)


def closest(X, vectors, outputs=1):
    """The largest |cosine| of a vector, or of a difference of two in a row, with a row."""
    dense = np.asarray(X.todense())
    dense = dense[np.linalg.norm(dense, axis=1) > 0]
    dense = dense / np.linalg.norm(dense, axis=1, keepdims=True)
    told = [*vectors, *(b - a for a, b in pairwise(vectors))]
    parts = np.array(told).reshape(len(told) * outputs, -1)
    parts = parts[np.linalg.norm(parts, axis=1) > 0]
    parts = parts / np.linalg.norm(parts, axis=1, keepdims=True)
    return float(np.abs(parts @ dense.T).max(initial=0.0))


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
@pytest.mark.parametrize(("n", "d", "density"), [(60, 30, 1.0), (25, 60, 0.1)])
def test_pushes_of_sessions_give_no_row_away(algorithm, n, d, density):
    sent, datas = defaultdict(list), {name: rows(n, d, seed, density) for seed, name in enumerate("abc")}
    net = SessionNet([session(name, data, algorithm) for name, data in datas.items()])
    for _ in range(150):
        for name, one in net.sessions.items():
            for push in step(one, one.edge_names):
                sent[name].append((push[0], push[2]))
                net.sessions[push[0]].receive(name, as_push(one, push))
    for name, (X, _) in datas.items():
        whole = sp.csr_matrix(sp.hstack([X, np.ones((n, 1))]))
        assert len(sent[name]) >= 60
        assert closest(whole, [vector for _, vector in sent[name]]) <= 0.99
        for receiver in {receiver for receiver, _ in sent[name]}:
            assert closest(whole, [vector for to, vector in sent[name] if to == receiver]) <= 0.99


def test_pushes_after_single_examples_do_give_rows_away():
    """A GADGET step from zero is a row: what the test above looks for is there to be found."""
    single = Gadget(gossip="running-sum", solver="implicit", local_steps=1)
    bare = learner(rows(60, 30), "gadget", neighbours=[1], chosen=single)
    (first,) = bare.solve()
    assert closest(bare.X, [first.vector]) > 0.99
    assert filter_of(bare.X).release(1, first.vector, None) is None


def test_so_does_the_difference_of_two_that_one_row_lies_between():
    X, _ = rows(60, 30)
    first = 10.0 * np.random.default_rng(0).normal(size=30)
    second = first + 0.1 * np.asarray(X[11].todense()).ravel()
    assert closest(X, [first]) < 0.99
    assert closest(X, [first, second]) > 0.99


def test_the_first_push_of_pdmm_comes_after_a_whole_pass():
    """Rows at right angles: each needs a dual variable of its own, so all were visited."""
    n = 24
    X, y = sp.csr_matrix(np.eye(n)), np.where(np.arange(n) % 2, 1, -1)
    fresh = learner((X, y), neighbours=[1])
    assert fresh.duals is None
    assert fresh.solve()
    assert (fresh.duals > 0).all()


@pytest.mark.parametrize("n", [20, 75])
def test_the_first_push_of_gadget_comes_after_as_many_steps_as_rows(n):
    fresh = learner(rows(n), "gadget", neighbours=[1])
    assert fresh.solve()
    assert fresh.block.steps[0] >= n


# the filter by itself


@pytest.fixture
def guard():
    X, _ = rows(30, 20)
    return filter_of(X, 1), np.asarray(X.todense()), np.random.default_rng(0)


def sends(guard, receiver, vector, duals):
    """Whether it may be sent; if so, it is."""
    found = guard.release(receiver, vector, duals)
    return found is not None and np.array_equal(found, vector)  # not kept back, and without noise


def test_a_row_or_its_multiple_is_kept_back(guard):
    found, X, rng = guard
    for row in X[:5]:
        assert not sends(found, 1, 0.01 * row, None)
        assert not sends(found, 1, -100.0 * row + 0.001 * rng.normal(size=20), None)
    assert found.suppressed == 10
    assert found.last_sent(1) is None
    assert sends(found, 1, rng.normal(size=20), None)


def test_a_difference_along_a_row_is_kept_back_whoever_got_the_first(guard):
    found, X, rng = guard
    first = 10.0 * rng.normal(size=20)
    assert sends(found, 1, first, None)
    assert not sends(found, 1, first + X[3], None)  # to the same
    assert not sends(found, 2, first - 0.1 * X[4], None)  # to another
    assert sends(found, 1, first + X[3] + X[4] - X[5], None)


def test_what_was_kept_back_is_not_taken_to_be_sent(guard):
    found, X, rng = guard
    first = 10.0 * rng.normal(size=20)
    assert sends(found, 1, first, None)
    assert not sends(found, 1, first + X[3], None)
    np.testing.assert_array_equal(found.last_sent(1), first)
    assert not sends(found, 1, first + 2.0 * X[3], None)


def test_the_same_again_says_nothing_new(guard):
    found, _, rng = guard
    first = rng.normal(size=20)
    assert all(sends(found, 1, first, None) for _ in range(3))
    assert found.suppressed == 0


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_rounding_of_one_at_rest_points_nowhere(outputs):
    """Two products whose difference is all rounding have any cosine, also above 1."""
    X, _ = rows(30, 20)
    found, rng = filter_of(X, outputs), np.random.default_rng(1)
    at_rest = rng.normal(size=20 * outputs)
    for _ in range(300):
        noise = rng.normal(size=20 * outputs)
        assert sends(found, 1, at_rest + 6e-16 * noise * np.abs(at_rest), None)
    assert found.suppressed == 0


@pytest.mark.parametrize("part", [1e-2, 1e-6, 1e-10, 1e-12, 1e-13, 1e-14])
def test_a_change_along_a_row_is_kept_back_however_short(guard, part):
    """As long as float64 has the digits for it."""
    found, X, rng = guard
    for row in X:
        first = rng.normal(size=20)
        assert sends(found, 1, first, None)
        second = first + part * np.linalg.norm(first) * row / np.linalg.norm(row)
        assert closest(sp.csr_matrix(X), [first, second]) > 0.99
        assert not sends(found, 1, second, None)


def test_a_change_is_short_only_beside_the_weights_it_changes():
    """One large weight, which a row has nothing to do with, does not hide that row's change of the others."""
    X = rows(30, 20)[0].toarray()
    X[:, 0] = 0.0
    found, first = filter_of(sp.csr_matrix(X), 1), np.random.default_rng(0).normal(size=20)
    first[0] = 1e9
    assert sends(found, 1, first, None)
    second = first + 1e-9 * X[3]
    assert np.linalg.norm(second - first) < 1e-16 * np.linalg.norm(first)
    assert not sends(found, 1, second, None)


def test_a_change_of_the_last_digit_of_every_weight_tells_nothing():
    """Even if their signs are a row's."""
    row, n = np.where(np.arange(20) % 2, 1.0, -1.0), 20
    X = np.vstack([rows(30, n)[0].toarray(), row])
    found, first = filter_of(sp.csr_matrix(X), 1), np.full(n, 1.5)
    eps = np.finfo(float).eps  # a unit in the last place of 1.5
    assert sends(found, 1, first, None)
    assert sends(found, 1, first + eps * row, None)
    assert not sends(found, 1, first + 30 * eps * row, None)


def test_every_output_is_looked_at():
    X, _ = rows(30, 20)
    found, rng = filter_of(X, 3), np.random.default_rng(0)
    vector = rng.normal(size=60)
    assert sends(found, 1, vector, None)
    change = np.zeros((3, 20))
    change[1] = np.asarray(X[7].todense()).ravel()
    assert not sends(found, 1, vector + change.ravel(), None)


def test_a_vector_of_one_rows_dual_variable_is_kept_back_also_where_features_are_few():
    X, _ = rows(30, 4)
    found, one, two = filter_of(X, 1), np.zeros((1, 30)), np.zeros((1, 30))
    one[0, 5], two[0, 5], two[0, 6] = 0.3, 0.3, 0.2
    assert not sends(found, 1, np.asarray(0.3 * X[5].todense()).ravel(), one)
    assert sends(found, 1, np.asarray((0.3 * X[5] + 0.2 * X[6]).todense()).ravel(), two)


def test_rows_of_zeros_are_along_nothing():
    X = sp.csr_matrix(np.vstack([np.zeros(20), rows(30, 20)[0].toarray()]))
    found = filter_of(X, 1)
    assert sends(found, 1, np.zeros(20), None)
    assert sends(found, 1, np.ones(20), None)


def test_only_the_latest_neighbours_of_before_are_remembered(guard):
    found, X, rng = guard
    vectors = rng.normal(size=(FORMER + 3, 20))
    for other, vector in enumerate(vectors):
        assert sends(found, other, vector, None)
    assert sends(found, 0, vectors[0], None)  # spoken to again: not the oldest any more
    found.forget({1})
    assert [other for other in range(FORMER + 3) if found.last_sent(other) is None] == [2, 3]
    assert not sends(found, 5, vectors[5] + X[3], None)  # one who comes back


def test_what_was_sent_outlives_a_restart(guard):
    found, X, rng = guard
    first, last = 10.0 * rng.normal(size=(2, 20))
    for other, vector in ((3, first), (7, last)):
        assert sends(found, other, vector, None)
    again = filter_of(sp.csr_matrix(X), 1)
    assert sends(again, 3, first + X[2], None)  # as the test can fail
    again = filter_of(sp.csr_matrix(X), 1)
    again.restore(found.state())
    assert not sends(again, 3, first + X[2], None)
    assert not sends(again, 4, last + X[2], None)  # the last to anyone
    assert sends(again, 4, first + X[2] - X[4] + X[7], None)
    assert filter_of(sp.csr_matrix(X), 1).state()["sent"].shape == (0, 20)


def test_one_who_has_settled_is_heard_in_the_end(guard):
    """The same vector again and again, one row away from the last: with noise, then as it is."""
    found, X, rng = guard
    first = 10.0 * rng.normal(size=20)
    last = first + 0.5 * X[3]
    assert sends(found, 1, first, None)
    for _ in range(SUPPRESSED_BEFORE_NOISE - 1):
        assert found.release(1, last, None) is None
    noisy = next(told for told in (found.release(1, last, None) for _ in range(5)) if told is not None)
    noise, change = noisy - last, last - first
    assert np.linalg.norm(noise) == pytest.approx(np.linalg.norm(change))
    assert abs(noise @ change) < 1e-9
    assert closest(sp.csr_matrix(X), [first, noisy]) < 0.95
    assert found.noised == 1
    np.testing.assert_array_equal(found.release(1, last, None), last)


def test_a_first_vector_is_never_let_out_with_noise(guard):
    found, X, _ = guard
    assert all(found.release(1, X[0], None) is None for _ in range(4 * SUPPRESSED_BEFORE_NOISE))
    assert found.suppressed == 4 * SUPPRESSED_BEFORE_NOISE


@pytest.mark.parametrize("d", [5, 12])
def test_sites_of_few_rows_agree_as_well_as_without_a_guard(d):
    """Near the end hardly more than one row of a site moves: that must not silence it."""

    def spread(guarded):
        team = [learner(rows(40, d, 50 + i), node=i, neighbours=[j for j in range(5) if j != i]) for i in range(5)]
        guards, inbox = [filter_of(each.X, 1) for each in team], [[] for _ in team]
        for _ in range(500):
            arriving, inbox = inbox, [[] for _ in team]
            for i, each in enumerate(team):
                for message in each.solve():
                    told = guards[i].release(message.other, message.vector, each.duals) if guarded else message.vector
                    if told is not None:
                        inbox[message.other].append(message._replace(other=i, vector=told.copy()))
                each.absorb(arriving[i])
        models = np.array([each.model().ravel() for each in team])
        return float(np.abs(models - models.mean(axis=0)).max() / np.abs(models).max())

    assert spread(True) < max(1e-3, 3.0 * spread(False))


@pytest.mark.parametrize("seed", [0, 2])
def test_two_sites_at_rest_are_heard(seed):
    """Their letters differ by rounding, which is no secret: nearly all go out as they are."""
    team = [learner(rows(150, 12, 60 + 2 * seed + i), node=i, neighbours=[1 - i]) for i in range(2)]
    guards, inbox, kept_back = [filter_of(each.X, 1) for each in team], [[], []], 0
    for t in range(2000):
        arriving, inbox = inbox, [[], []]
        for i, each in enumerate(team):
            for message in each.solve():
                told = guards[i].release(message.other, message.vector, each.duals)
                if told is not None:
                    inbox[message.other].append(message._replace(other=i, vector=told.copy()))
            each.absorb(arriving[i])
        if t == 1700:
            kept_back = sum(guard.suppressed + guard.noised for guard in guards)
    assert sum(guard.suppressed + guard.noised for guard in guards) - kept_back < 15  # of 600


def test_a_neighbour_that_nothing_was_ever_sent_to_is_blocked(guard):
    found, X, rng = guard
    for _ in range(SUPPRESSED_BEFORE_BLOCKED):
        assert not found.blocked
        assert not sends(found, 1, X[0], None)
    assert found.blocked == [1]
    assert sends(found, 1, rng.normal(size=20), None)
    assert not found.blocked
