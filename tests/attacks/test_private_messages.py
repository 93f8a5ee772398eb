"""Everything that a private node sends is a function of its noisy slopes, row counts, and what it received."""

import numpy as np
import pytest

from gadget_svm import DifferentialPrivacy, GadgetSVC
from gadget_svm.algorithms import private_gradient
from gadget_svm.faults import Fault

COUNTS = [40, 25, 60, 35]


class RecordMessages(Fault):
    """Keeps the bytes of all messages; nothing goes wrong."""

    loses = False

    def __init__(self):
        self.sent = []

    def wrap(self, exchange, context):  # noqa: ARG002
        def recording(messages):
            fields = (np.asarray(0 if field is None else field).tobytes() for field in messages)
            self.sent.append(b"".join(fields))
            return exchange(messages)

        return recording


def some_rows(seed):
    """Rows whose labels, lengths, sparsity and used features depend on the seed."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(COUNTS), 6), scale=10.0**seed) * (rng.random((sum(COUNTS), 6)) < 0.3 + 0.3 * seed)
    X[:, 5 * seed] = 0.0
    y = (rng.random(len(X)) < 0.2 + 0.5 * seed).astype(int)
    return X, y


def trained(seed, **parameters):
    record = RecordMessages()
    model = GadgetSVC(
        topology="ring", privacy=DifferentialPrivacy(1.0, noise="seeded"), faults=[record], random_state=0, **parameters
    )  # fmt: skip
    X, y = some_rows(seed)
    model.fit(X, y, sites=np.repeat(range(len(COUNTS)), COUNTS), sample_weight=1.0 + (X[:, 1] > 0) * seed)
    return record.sent, model


@pytest.fixture
def recorded_slopes(monkeypatch):
    """Noisy slopes of the first training, which all later ones release in place of their own."""
    kept, place, right = [], [0], private_gradient.add_seeded_noise

    def release(*arguments):
        slopes = arguments[-1]
        if place[0] == len(kept):
            right(*arguments)
            kept.append(slopes.copy())
        slopes[:] = kept[place[0]]
        place[0] += 1

    monkeypatch.setattr(private_gradient, "add_seeded_noise", release)
    return place


@pytest.mark.parametrize("intercept", [True, False])
def test_other_rows_with_the_same_noisy_slopes_send_the_same_bytes(recorded_slopes, intercept):
    first, model = trained(0, fit_intercept=intercept)
    assert len(first) >= 2 * model.privacy_["planned_rounds"]
    recorded_slopes[0] = 0
    second, other = trained(1, fit_intercept=intercept)
    assert first == second
    np.testing.assert_array_equal(model.node_coef_, other.node_coef_)
    assert model.privacy_ == other.privacy_


def test_other_rows_send_other_bytes():
    """Otherwise the test above would show nothing."""
    (first, _), (second, _) = trained(0), trained(1)
    assert len(first) == len(second)
    assert all(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_replacing_a_row_changes_the_messages_of_its_node_only(monkeypatch):
    """Rows are dealt by position: a deal by content would move other rows to other nodes, which no budget covers."""
    released, right = [], private_gradient.mean_slopes

    def recording(*arguments):
        right(*arguments)
        released.append(arguments[-1].copy())

    monkeypatch.setattr(private_gradient, "mean_slopes", recording)
    X, y = some_rows(0)
    first = []
    for replaced in (X, np.vstack([X[:7], 5.0 - X[7:8], X[8:]])):
        released.clear()
        GadgetSVC(5, privacy=DifferentialPrivacy(1.0, noise="seeded"), random_state=0, max_iter=1).fit(replaced, y)
        first.append(next(slopes for slopes in released if len(slopes)))  # a block without nodes compiles kernels
    assert (first[0] != first[1]).any(axis=(1, 2)).sum() == 1
