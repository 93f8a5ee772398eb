"""Measures the quality of models: every node and the network average, on training and test rows."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gadget_svm.core.rows import Objective
from gadget_svm.core.types import Array, Floats, Ints
from gadget_svm.data import Dataset
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.problem import as_csr, outputs_of
from gadget_svm.kernels import ThreadTeam

MAX_NODES_EVALUATED = 1000
"""If there are more nodes, an even sample of this size is evaluated, because the cost is nodes times rows."""
MAX_LABELS_IN_MESSAGE = 20
Scores = dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """The rows that models are evaluated on. None means that this process has no such rows."""

    train: Objective | None
    test: Objective | None

    @classmethod
    def of(cls, data: Dataset, lam: float, intercept: bool, n_jobs: int | None, multi_class: str) -> Self:
        """Return the evaluation of a data set; ValueError if the test rows have a label that no training row has.

        The classes are those of ``data.y``, also if ``data.X`` has no rows because actors hold them.
        """
        team, classes = ThreadTeam.of(n_jobs), np.unique(data.y)
        outputs, pairs = outputs_of(len(classes), multi_class)

        def objective(X: Any, y: Array) -> Objective:
            ones, label = np.ones(len(y)), np.searchsorted(classes, y).astype(np.int32)
            return Objective(as_csr(X, intercept), label, ones, ones, lam, outputs, team, pairs)

        train = objective(data.X, data.y) if data.X.shape[0] else None
        if data.X_test is None or data.y_test is None:
            return cls(train, None)
        unknown = np.setdiff1d(data.y_test, classes)
        if len(unknown):
            known = ", ".join(map(str, classes[:MAX_LABELS_IN_MESSAGE].tolist()))
            raise ValueError(f"the test rows have the label {unknown[0]!s}, and the training rows only have {known}")
        return cls(train, objective(data.X_test, data.y_test))

    def nodes(self, model: GadgetSVC, sizes: Ints) -> list[Scores]:
        """Return one entry per node, or per node of an even sample; ``sizes`` are the nodes' numbers of rows."""
        n_nodes = len(model.node_coef_)
        chosen = np.unique(np.linspace(0, n_nodes - 1, min(n_nodes, MAX_NODES_EVALUATED)).astype(np.int64))
        coef, intercept = model.node_coef_[chosen], model.node_intercept_[chosen]
        if coef.ndim == 2:  # two classes: one output
            coef, intercept = coef[:, None], intercept[:, None]
        scores = self._scores(coef, intercept, model.fit_intercept)
        return [{"node": i, "rows": int(sizes[i]), **each} for i, each in zip(chosen.tolist(), scores, strict=True)]

    def average(self, model: GadgetSVC) -> Scores:
        """Return the network average's scores. If actors hold the training rows, take those from the last record."""
        scores = self.model(model.coef_, model.intercept_, model.fit_intercept)
        if self.train is not None:
            return scores
        last = model.history_[-1]
        return scores | {"train_objective": last["objective"], "train_accuracy": 1 - last["error"]}

    def model(self, coef: Floats, bias: Floats, intercept: bool) -> Scores:
        """Return the scores of any linear model (outputs x features)."""
        return self._scores(coef[None], bias[None], intercept)[0]

    def _scores(self, coef: Floats, bias: Floats, intercept: bool) -> list[Scores]:
        """Return the scores of models (models x outputs x features)."""
        models = np.concatenate([coef, bias[..., None]], axis=2) if intercept else coef
        train, test = (each if each is None else each(models) for each in (self.train, self.test))
        return [
            {
                "train_objective": None if train is None else float(train.objective[i]),
                "train_accuracy": None if train is None else float(1 - train.error[i]),
                "test_accuracy": None if test is None else float(1 - test.error[i]),
            }
            for i in range(len(models))
        ]
