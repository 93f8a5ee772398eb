"""Validation of a fit's rows, labels and weights, and the problem made from them."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.utils.validation import _check_sample_weight, validate_data

from gadget_svm.core.rows import Shares
from gadget_svm.core.types import Array, Floats, Indices
from gadget_svm.estimator.problem import Problem, as_csr, pairs_of, row_weights
from gadget_svm.estimator.validation import check_memory, require_classes, require_one_kind

if TYPE_CHECKING:
    from gadget_svm.estimator.svc import GadgetSVC


class ValidatedRows(NamedTuple):
    """Validated rows."""

    X: sp.csr_matrix  # includes the constant feature if there is an intercept
    label: Indices  # class numbers
    times: Floats | None  # sample weight times class weight; None: all 1

    def require_two_classes(self, classes: Array) -> None:
        """Raise unless at least two classes have rows of positive weight."""
        present = np.unique(self.label if self.times is None else self.label[self.times > 0])
        if len(present) < 2:
            raise ValueError(
                f"the data has only one class{'' if self.times is None else ' of positive weight'}, "
                f"{classes.tolist()[present[0]]!r}: a classifier needs rows of at least two"
            )

    def weighted(self) -> sp.csr_matrix:
        """Return the rows of positive weight."""
        return self.X if self.times is None or self.times.all() else self.X[self.times > 0]


def validate_rows(
    model: "GadgetSVC", X: Any, y: Any, sample_weight: Any, *, reset: bool, classes: ArrayLike | None = None
) -> ValidatedRows:
    """Check rows, labels and weights; with ``reset`` sets ``classes_`` and the features of the model."""
    require_one_kind(y, "y")
    X, y = validate_data(model, X, y, accept_sparse="csr", dtype=np.float64, reset=reset, accept_large_sparse=True)
    require_classes(y)
    if reset:
        require_one_kind(classes, "classes")
        model.classes_ = np.unique(y if classes is None else classes)
    if not (reset and classes is None) and len(unknown := np.setdiff1d(y, model.classes_)):
        raise ValueError(f"label {unknown.tolist()[0]!r} is not among the classes {model.classes_.tolist()}")
    label = np.searchsorted(model.classes_, y).astype(np.int32)
    times = None
    if sample_weight is not None:
        times = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    times = row_weights(model.class_weight, model.classes_, label, times)
    if times is not None and not times.any():
        raise ValueError("all weights are zero: no row is left to learn from")
    if times is not None and not 1e-150 <= times.max() <= 1e150:
        raise ValueError(
            f"the largest weight, sample weight times class weight, is {times.max():.3g}; beyond 1e150 or below "
            "1e-150 sums of squares overflow: divide all weights by their mean, which changes nothing with lam"
        )
    return ValidatedRows(as_csr(X, model.fit_intercept), label, times)


def make_problem(model: "GadgetSVC", rows: ValidatedRows, shares: Shares) -> Problem:
    """Make the problem that the nodes solve: one output; or one per class, or per pair of classes."""
    classes, (X, label, times) = len(model.classes_), rows
    pairs = pairs_of(classes, model.multi_class)
    outputs = len(pairs) or (1 if classes == 2 else classes)
    if len(pairs) and model.engine == "local":
        check_memory(len(model.network_.indices), len(model.sites_), outputs, X.shape[1], len(label))
    return Problem(X, label, times, shares, model.sites_, outputs, pairs, bool(model.fit_intercept))


def check_batch(model: "GadgetSVC", first: bool, classes: ArrayLike | None) -> None:
    """Raise if `partial_fit` cannot start, or continue, with these classes and the model's parameters."""
    if model.C is not None:
        raise ValueError("C needs the number of all rows: give partial_fit lam, which is 1 / (C * number of rows)")
    if isinstance(model.class_weight, str) and model.class_weight == "balanced":
        raise ValueError("class_weight='balanced' needs all rows at once: give partial_fit a dict of weights")
    if first:
        if classes is None:
            raise ValueError("the first call of partial_fit needs classes: all labels that will ever occur")
        return
    if "_state" not in model.__dict__:
        raise ValueError(
            "a model of one node, or read from a file, cannot be trained further: call fit, or partial_fit on a clone"
        )
    if classes is not None and not np.array_equal(np.unique(classes), model.classes_):
        raise ValueError(f"classes are fixed by the first call: {model.classes_.tolist()}, now {classes!r}")
    changed = "set it back, or start again with fit or a clone"
    if len(model.classes_) > 2 and model.multi_class != model.multi_class_:
        raise ValueError(
            f"the outputs were trained with multi_class={model.multi_class_!r}, now it is {model.multi_class!r}: "
            f"{changed}"
        )
    if model.n_nodes not in (model._requested_nodes, len(model.sites_)):
        raise ValueError(
            f"the network has {len(model.sites_)} nodes (n_nodes was {model._requested_nodes}), now n_nodes is "
            f"{model.n_nodes}: {changed}"
        )
    state = model._state
    if state is not None and bool(model.fit_intercept) != state.w.shape[-1] - model.n_features_in_:
        raise ValueError(f"fit_intercept was {not model.fit_intercept}, now it is {model.fit_intercept}: {changed}")
