"""How good the models are: every node and the network average, on training and test rows. Only measures."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.objective import Objective, Scores
from gadget_svm.core.types import Floats
from gadget_svm.data import Dataset
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.problem import as_csr, pairs_of
from gadget_svm.kernels import ThreadTeam

MOST_JUDGED = 1000
"""Of more nodes than this an even sample of so many is judged: it costs nodes times rows."""
TOGETHER = 50


@dataclass(frozen=True)
class Outsider:
    """The test rows, where there are some, to measure models by: the training rows are elsewhere, and of them is known
    what the history says of the network average."""

    test: Objective | None

    @classmethod
    def of(
        cls, data: Dataset, lam: float, intercept: bool, n_jobs: int | None = None, multi_class: str = "ovr"
    ) -> Self:
        """Fails where the test rows have a label that no training row has."""
        return cls(_test_objective(data, lam, intercept, ThreadTeam.of(n_jobs), multi_class))

    def test_error(self, mean: Floats) -> float | None:
        """The zero-one error of one model (outputs x features) on the test rows."""
        return None if self.test is None else float(self.test(mean[None]).error[0])

    def nodes(self, model: GadgetSVC, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """One entry per node, or per node of an even sample."""
        chosen = sampled(len(model.node_coef_))
        entries: list[dict[str, Any]] = []
        for start in range(0, len(chosen), TOGETHER):
            some = chosen[start : start + TOGETHER]
            scores = list(self._scores(_stacked(model.node_coef_[some], model.node_intercept_[some], model)))
            entries += [
                {"node": int(node), "rows": int(rows[node]), **score} for node, score in zip(some, scores, strict=True)
            ]
        return entries

    def average(self, model: GadgetSVC) -> dict[str, Any]:
        """The network average's scores; of training rows that are elsewhere, those who have them told the last."""
        last = model.history_[-1]
        seen = {"train_objective": last["objective"], "train_accuracy": 1 - last["error"]}
        return self.model(model.coef_, model.intercept_, model.fit_intercept) | seen

    def model(self, coef: Floats, bias: Floats, intercept: bool) -> dict[str, Any]:
        """The scores of any linear model (outputs x features)."""
        whole = np.hstack([coef, np.reshape(bias, (-1, 1))]) if intercept else coef
        return next(self._scores(whole[None]))

    def _scores(self, models: Floats) -> Iterator[dict[str, Any]]:
        for right in [None] * len(models) if self.test is None else (1 - self.test(models).error).tolist():
            yield {"train_objective": None, "train_accuracy": None, "test_accuracy": right}


@dataclass(frozen=True)
class Evaluator(Outsider):
    """The training rows and, where there are some, the test rows, to measure models by."""

    train: Objective

    @classmethod
    def of(
        cls, data: Dataset, lam: float, intercept: bool, n_jobs: int | None = None, multi_class: str = "ovr"
    ) -> Self:
        """Fails where the test rows have a label that no training row has."""
        team = ThreadTeam.of(n_jobs)
        train = _objective(data.X, data.y, np.unique(data.y), lam, intercept, team, multi_class)
        return cls(_test_objective(data, lam, intercept, team, multi_class), train)

    def average(self, model: GadgetSVC) -> dict[str, Any]:
        """The network average's scores."""
        return self.model(model.coef_, model.intercept_, model.fit_intercept)

    def _scores(self, models: Floats) -> Iterator[dict[str, Any]]:
        train: Scores = self.train(models)
        pairs = zip(train.objective.tolist(), (1 - train.error).tolist(), strict=True)
        for scores, (objective, right) in zip(super()._scores(models), pairs, strict=True):
            yield scores | {"train_objective": objective, "train_accuracy": right}


def sampled(n_nodes: int) -> NDArray[np.int64]:
    """The nodes that are judged."""
    return np.unique(np.linspace(0, n_nodes - 1, min(n_nodes, MOST_JUDGED)).astype(np.int64))


def rows_of_nodes(n_rows: int, n_nodes: int, sites: NDArray[Any] | None) -> NDArray[np.int64]:
    """How many rows each node owns."""
    if sites is not None:
        return np.bincount(sites, minlength=n_nodes)
    return n_rows // n_nodes + (np.arange(n_nodes) < n_rows % n_nodes)


def _test_objective(data: Dataset, lam: float, intercept: bool, team: ThreadTeam, multi_class: str) -> Objective | None:
    if data.X_test is None or data.y_test is None:
        return None
    classes = np.unique(data.y)
    strangers = np.setdiff1d(data.y_test, classes)
    if len(strangers):
        raise ValueError(
            f"the test rows have the label {strangers[0]!s}, which no training row has: the labels are "
            f"{', '.join(map(str, classes[:20].tolist()))}"
        )
    return _objective(data.X_test, data.y_test, classes, lam, intercept, team, multi_class)


def _objective(
    X: Any, y: Any, classes: NDArray[Any], lam: float, intercept: bool, team: ThreadTeam, multi_class: str
) -> Objective:
    ones, label = np.ones(len(y)), np.searchsorted(classes, y).astype(np.int32)
    pairs = pairs_of(len(classes), multi_class)
    outputs = len(pairs) or (1 if len(classes) == 2 else len(classes))
    return Objective(as_csr(X, intercept), label, ones, ones, lam, outputs, team, pairs)


def _stacked(coef: Floats, bias: Floats, model: GadgetSVC) -> Floats:
    """Models as nodes x outputs x features, the constant feature's weight last."""
    if coef.ndim == 2:
        coef, bias = coef[:, None, :], bias[:, None]
    return np.concatenate([coef, bias[..., None]], axis=2) if model.fit_intercept else np.asarray(coef)
