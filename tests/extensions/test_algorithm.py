"""An algorithm written outside the package: decentralised gradient tracking (DIGing) for the hinge loss."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from gadget_svm import GadgetSVC, build_network
from gadget_svm.algorithms import ALGORITHMS, BaseAlgorithm, BaseRun
from gadget_svm.gossip import make_messages, message_order


class GradientTracking(BaseAlgorithm):
    average = False

    def __init__(self, step=0.05, smoothing=0.1):
        self.step = step
        self.smoothing = smoothing

    def bind(self, network, lam, radius, lossy=False, sizes=None):  # noqa: ARG002
        return TrackingRun(self.step, self.smoothing, lam, len(sizes) / sizes.sum())


@dataclass
class TrackingRun(BaseRun):
    step: float
    smoothing: float
    lam: float
    per_row: float
    average = False

    def gradient(self, block):
        """Of lam/2 |w|^2 + (nodes / N) sum of smoothed hinges; binary labels."""
        rows, g = block.rows, self.lam * block.flat
        X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(len(rows.label), g.shape[1]))
        for i in range(block.k):
            own = rows.order[rows.start[i] : rows.start[i + 1]]
            y = np.where(rows.label[own] == 1, 1.0, -1.0)
            slope = np.clip((1 - y * (X[own] @ block.flat[i])) / self.smoothing, 0, 1)
            g[i] -= self.per_row * (X[own].T @ (slope * y))
        return g

    def iteration(self, block, t):
        edge, links = block.edge, block.links
        if "tracked" not in edge:
            edge["gradient"] = edge["tracked"] = self.gradient(block)
        i, both = np.repeat(np.arange(block.k), np.diff(links.indptr)), np.hstack([block.flat, edge["tracked"]])
        delivery = yield make_messages(block, t, i + block.first, np.arange(len(i)), both[i], links.share)
        (order, start), mail = message_order(block, delivery.messages), delivery.messages
        both *= links.keep[:, None]
        np.add.at(both, np.repeat(np.arange(block.k), np.diff(start)), (mail.weight[:, None] * mail.vector)[order])
        block.flat[:] = both[:, : block.s.shape[1]] - self.step * edge["tracked"]
        before, edge["gradient"] = edge["gradient"], self.gradient(block)
        edge["tracked"] = both[:, block.s.shape[1] :] + edge["gradient"] - before
        block.iterates += 1


def fitted(toy, algorithm, blocks=1, max_iter=800):
    network = build_network("ring", 5, transition="metropolis")
    model = GadgetSVC(
        5, network, algorithm=algorithm, lam=0.05, max_iter=max_iter, stopping=None, random_state=0,
        fit_intercept=False, engine_options={"blocks": blocks},
    )  # fmt: skip
    return model.fit(toy.X, toy.y)


def test_every_node_approaches_the_pooled_optimum(toy):
    model = fitted(toy, GradientTracking())
    y = np.where(toy.y == model.classes_[1], 1.0, -1.0)
    svc = LinearSVC(loss="hinge", C=1 / (0.05 * len(y)), fit_intercept=False, tol=1e-8, max_iter=10**6).fit(toy.X, y)

    def objective(w):
        return 0.025 * w @ w + np.maximum(0, 1 - y * (toy.X @ w)).mean()

    gaps = [objective(w) / objective(svc.coef_[0]) - 1 for w in model.node_coef_]
    assert max(gaps) < 0.03
    assert np.ptp(model.node_coef_, axis=0).max() < 1e-3  # the nodes agree


def test_blocks_change_no_bit(toy):
    one, several = (fitted(toy, GradientTracking(), blocks, 20).node_coef_ for blocks in (1, 3))
    np.testing.assert_array_equal(one, several)


def test_it_is_found_by_name_through_an_entry_point(toy, monkeypatch):
    point = EntryPoint("gradient-tracking", f"{__name__}:GradientTracking", ALGORITHMS.group)
    monkeypatch.setattr(ALGORITHMS, "_outside", {point.name: point})
    monkeypatch.setattr(ALGORITHMS, "_members", dict(ALGORITHMS._members))
    one, other = fitted(toy, "gradient-tracking", 1, 10), fitted(toy, GradientTracking(), 1, 10)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert isinstance(one.algorithm_, GradientTracking)


def test_its_parameters_are_those_of_scikit_learn():
    assert GadgetSVC(algorithm=GradientTracking()).set_params(algorithm__step=0.2).algorithm.step == 0.2
    with pytest.raises(ValueError, match="unknown parameter of GradientTracking"):
        GradientTracking().set_params(speed=1)
