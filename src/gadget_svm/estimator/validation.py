"""Checks the input of a fit: rows, labels, weights, and the parameters that no other module checks.

Makes the problem from the checked rows. Every message names the fix.
"""

import numbers
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.utils.validation import _check_sample_weight, validate_data

from gadget_svm import algorithms
from gadget_svm.algorithms.base import Algorithm, checked_count, checked_positive
from gadget_svm.core.lookup import lookup, require_instance
from gadget_svm.core.rows import Shares
from gadget_svm.core.types import Array, Floats, Indices
from gadget_svm.estimator.problem import Problem, as_csr, clip_rows, outputs_of, row_weights
from gadget_svm.privacy import DifferentialPrivacy
from gadget_svm.simulation.runtime import Observer

if TYPE_CHECKING:
    from gadget_svm.estimator.svc import GadgetSVC


def _local(options: dict[str, Any], model: Any) -> None:  # noqa: ARG001
    for name, value in options.items():
        lookup("option of engine 'local'", name, {"blocks": 1})
        checked_count(value, f"engine option {name}", 1)


def _ray(options: dict[str, Any], model: Any) -> None:
    from gadget_svm.cluster.options import RayOptions

    RayOptions.of(options)
    if model.faults:
        raise ValueError("faults are simulated: use engine='local' with them, or engine='ray' without")


ENGINES = {"local": _local, "ray": _ray}
"""The check of each engine's options."""

DEFAULT_LAM = 1e-4
MIN_LAM = 1e-60
MAX_SEED = 2**63 - 1


def check_parameters(model: Any) -> None:
    """Raise if a parameter of the model is out of its range, or its engine does not exist."""
    check_options = lookup("engine", model.engine, ENGINES)
    if not isinstance(model.engine_options, dict | None):
        raise ValueError(f"engine_options must be a dictionary such as {{'actors': 4}}, got {model.engine_options!r}")
    check_options(model.engine_options or {}, model)
    lam_of(model, 1.0)
    lookup("multi_class", model.multi_class, {"ovr": 1, "ovo": 1})
    if model.n_jobs is not None and (isinstance(model.n_jobs, bool) or not isinstance(model.n_jobs, numbers.Integral)):
        raise ValueError(f"n_jobs must be a whole number of threads, -1 for every core, or None, got {model.n_jobs!r}")
    for name in ("random_state", "topology_seed", "partition_seed"):
        seed = getattr(model, name)
        if isinstance(seed, numbers.Integral) or (seed is not None and name != "random_state"):
            checked_count(int(seed) if isinstance(seed, numbers.Integral) else seed, name, 0)
    _check_observers(model.observers)
    _check_privacy(model)
    checked_count(model.max_iter, "max_iter", 1)
    if not isinstance(model.fit_intercept, bool | np.bool_):
        raise ValueError(f"fit_intercept must be True or False, got {model.fit_intercept!r}")
    if model.tol is not None:
        checked_positive(model.tol, "tol", " (a tolerance, or None for the stopping rule's own)")
    if model.max_seconds is not None:
        checked_positive(model.max_seconds, "max_seconds", " (a time budget in seconds, or None)")
    if model.record_every is not None:
        checked_count(model.record_every, "record_every", 0)
    average = isinstance(model.stopping, str) and model.stopping == "average"
    if average and not algorithms.resolve(model.algorithm).average:
        raise ValueError(
            f"stopping='average' watches the averaged iterates, which {algorithms.resolve(model.algorithm)!r} does not "
            "keep: use stopping='auto', 'weights', 'objective' or None"
        )


def _check_privacy(model: Any) -> None:
    """Raise if a parameter would reveal more of the rows than the privacy budget covers and counts."""
    if model.privacy is None:
        return
    if not isinstance(model.privacy, DifferentialPrivacy):
        raise TypeError(f"privacy is DifferentialPrivacy(epsilon=1.0) or None, got {model.privacy!r}")
    model.privacy.check()
    if isinstance(model.class_weight, str):
        raise ValueError(
            "class_weight='balanced' counts the rows of each class: with privacy, give a dict of constants"
        )
    if model.stopping is not None and model.stopping != "auto":
        raise ValueError(
            f"stopping={model.stopping!r} looks at rows, which the budget does not cover: a private training ends "
            "after its planned rounds, leave stopping at 'auto'"
        )
    if model.tol is not None:
        raise ValueError("tol is for rules that look at rows: a private training ends after its planned rounds")
    repeats = [name for name in ("restart", "resume") if (model.engine_options or {}).get(name)]
    if repeats:
        raise ValueError(
            f"engine option {repeats[0]!r} repeats iterations since a checkpoint, with new noise, which the budget "
            "does not count: leave it out with privacy"
        )
    if model.C is not None:
        raise ValueError(
            "C is the weight of a sum over rows: with privacy, give lam, which is 1 / (C * number of rows)"
        )


def lam_of(model: Any, weight: float) -> float:
    """Return the problem's lam: as given, or 1 / (C * weight) with the ``weight`` of all rows together."""
    checked_positive(model.lam, "lam", " (the regulariser's weight, for example 1e-4)")
    if model.C is not None:
        checked_positive(model.C, "C", " (the weight of the losses, as LinearSVC's, or None to use lam)")
        if model.lam != DEFAULT_LAM:
            raise ValueError(
                f"lam={model.lam!r} and C={model.C!r} both set the regularisation: give one of them, and leave lam at "
                f"its default, {DEFAULT_LAM:g}, with C"
            )
    lam = float(model.lam) if model.C is None else 1.0 / (float(model.C) * weight)
    if not MIN_LAM <= lam <= 1 / MIN_LAM:
        given = f"lam={model.lam!r}" if model.C is None else f"C={model.C!r}"
        if model.C is not None and weight != 1:
            given += f" times the sum of the rows' weights, {weight:g},"
        limits = f"between {MIN_LAM:g} and {1 / MIN_LAM:g}"
        raise ValueError(f"{given} is out of the range of double precision: it must be {limits}")
    return lam


def require_one_kind(labels: Any, name: str) -> None:
    """Raise if some labels are text and others are not: they have no order, and 1 and "1" may mean the same."""
    if not isinstance(labels, list | tuple) and str(getattr(labels, "dtype", None)) != "object":
        return
    firsts = {isinstance(label, str): label for label in np.ravel(np.asarray(labels, dtype=object))[::-1]}
    if len(firsts) == 2:
        text, other = firsts[True], firsts[False]
        raise ValueError(
            f"{name} has text, such as {text!r}, and other labels, such as {other!r} ({type(other).__name__}): make "
            f"all of them text, np.asarray({name}, dtype=str), or all numbers, and drop rows without a label"
        )


FIX_BY_TEXT = "y.astype(str) makes every value a class"
CHOOSE = "label= names another column, positive=VALUE makes this value +1 and all others -1"


def require_classes(labels: Any, fix: str = FIX_BY_TEXT) -> None:
    """Raise if labels are measurements. The message starts like scikit-learn's, as its estimator checks require."""
    from sklearn.utils.multiclass import check_classification_targets  # here: actors run without scikit-learn

    values: Any = np.asarray(labels)
    whole = values.dtype.kind != "f" or (values == np.rint(values)) | ~np.isfinite(values)
    if not np.all(whole):
        first = f"{values[~whole][0]:g}"
        raise ValueError(
            f"Unknown label type: the label {first} is a measurement and not a class (classes are whole numbers or "
            f"text): {fix.replace('VALUE', first)}"
        )
    check_classification_targets(labels)


def check_memory(ends: int, nodes: int, outputs: int, features: int, rows: int) -> None:
    """Raise if this machine cannot hold the weights, edges and dual variables of all pairs of classes."""
    need = 8 * outputs * (features * (4 * nodes + ends) + 2 * rows)
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise ValueError(
            f"multi_class='ovo' trains {outputs:,} outputs at each of {nodes:,} nodes, about {need / 1e9:.0f} GB, and "
            f"this machine has {have / 1e9:.0f} GB: use multi_class='ovr', fewer nodes or fewer features"
        )


def default_stopping(algorithm: Algorithm) -> str:
    """Return the name of the rule that stopping="auto" means for this algorithm."""
    if algorithm.certifies:
        return "gap"
    return "average" if algorithm.average else "objective"


def _check_observers(observers: Any) -> None:
    if not isinstance(observers, list | tuple | None):
        raise TypeError(f"observers must be a list, such as [NodeRecords()], or None; got {observers!r}")
    for observer in observers or ():
        expected = "an observer is an instance of a class that derives from gadget_svm.Observer"
        require_instance(observer, Observer, expected, "NodeRecords()")


def require_two(classes: Array, whose: str = "") -> None:
    """Raise if there are fewer than two classes."""
    if len(classes) < 2:
        found = f"the data has only one class{whose}, {classes.tolist()[0]!r}"
        raise ValueError(f"{found}: a classifier needs rows of at least two")


class ValidatedRows(NamedTuple):
    """Validated rows."""

    X: sp.csr_matrix  # includes the constant feature if there is an intercept
    label: Indices  # class numbers
    times: Floats | None  # sample weight times class weight; None: all 1
    cost: Floats | None = None  # the same with a privacy budget, where no row counts as several

    def require_two_classes(self, classes: Array) -> None:
        """Raise if fewer than two classes have rows of positive weight."""
        present = np.unique(self.label if self.times is None else self.label[self.times > 0])
        require_two(classes[present], "" if self.times is None else " of positive weight")

    def within_budget(self, privacy: DifferentialPrivacy, class_weight: Any) -> "ValidatedRows":
        """Return the rows of a private training: norms are bounded, and each row counts once, whatever its weight."""
        largest = max(class_weight.values(), default=1.0) if isinstance(class_weight, dict) else 1.0
        cost = None if self.times is None else self.times / (largest or 1.0)
        return ValidatedRows(clip_rows(self.X, privacy.clip), self.label, None, cost)

    def weighted(self) -> sp.csr_matrix:
        """Return the rows of positive weight."""
        return self.X if self.times is None or self.times.all() else self.X[self.times > 0]


def validate_rows(
    model: "GadgetSVC", X: Any, y: Any, sample_weight: Any, *, reset: bool, classes: ArrayLike | None = None
) -> ValidatedRows:
    """Check rows, labels and weights; with ``reset``, set ``classes_`` and the features of the model."""
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
    rows = ValidatedRows(as_csr(X, model.fit_intercept), label, times)
    return rows if model.privacy is None else rows.within_budget(model.privacy, model.class_weight)


def make_problem(model: "GadgetSVC", rows: ValidatedRows, shares: Shares) -> Problem:
    """Make the problem that the nodes solve. It has one output, or one per class, or one per pair of classes."""
    classes, (X, label, times, cost) = len(model.classes_), rows
    outputs, pairs = outputs_of(classes, model.multi_class)
    if len(pairs) and model.engine == "local":
        check_memory(len(model.network_.indices), len(model.sites_), outputs, X.shape[1], len(label))
    return Problem(X, label, times, shares, model.sites_, outputs, pairs, bool(model.fit_intercept), cost)


def check_batch(model: "GadgetSVC", first: bool, classes: ArrayLike | None) -> None:
    """Raise if `partial_fit` cannot start, or continue, with these classes and the model's parameters."""
    if model.privacy is not None:
        raise ValueError("every batch would spend from the privacy budget: call fit once with all rows")
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
