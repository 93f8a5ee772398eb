"""Warnings after a fit: why it ended early or predicts badly, and what helps. Owns the text of all these warnings."""

import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from gadget_svm.estimator.svc import GadgetSVC

UNEQUAL_FEATURES_FACTOR = 100.0
"""The solver is slow if the typical sizes of the features differ by more than this factor."""
LARGE_FEATURE_SIZE = 5.0
"""The solver is slow if the typical size of the features is larger. Standardised features have size 1."""
MIN_MASS_SHARE = 0.99
"""If less than this share of its mass is left, Push-Sum no longer computes the average."""
MIN_EDGE_USES = 50
"""If an edge was used less often, its two nodes have not exchanged enough messages to agree."""
FAR_APART = 0.1
"""Advice mentions the disagreement between nodes if it exceeds this share of the average's length."""
REST_SHARE, REST_SAMPLE_ROWS = 0.9, 1000
"""A fit of several classes warns if every output answers "rest" to this share of a sample of the rows."""

SCALERS = "scale them, for example with StandardScaler, or MaxAbsScaler if they are sparse"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the line outside this package from which the call came."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "gadget_svm":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_after_fit(model: "GadgetSVC", X: sp.csr_matrix | None = None) -> None:
    """Warn if a fit ended early or its model predicts badly. X is None if the actors of a cluster hold the rows."""
    from sklearn.exceptions import ConvergenceWarning  # here: actors run without scikit-learn

    if model.stopping is not None and not model.converged_ and model.stopped_by_ != "interrupted":
        warn(not_converged(model, X), ConvergenceWarning)
    elif lost := mass_advice(model._mass_left):
        warn(lost)
    if X is not None and (rest := rest_advice(model, X)):
        warn(rest)


def mass_advice(mass_left: float | None) -> str:
    """Return advice on mass that was lost with messages, or an empty text if none was lost."""
    if mass_left is None or mass_left >= MIN_MASS_SHARE:
        return ""
    return (
        f"lost messages took {_percent(1 - mass_left)} of the gossip protocol's mass with them, so the nodes no longer "
        "compute averages: use Gadget(gossip='running-sum', gossip_rounds=1), which recovers from losses, or "
        "algorithm='pdmm'"
    )


def scale_advice(X: sp.csr_matrix | None, fix: str = SCALERS) -> str:
    """Return advice on features of unequal or large size, or an empty text if they are scaled or X is None."""
    if X is None or not X.nnz:
        return ""
    count = np.bincount(X.indices[X.data != 0], minlength=X.shape[1])
    square = np.bincount(X.indices, weights=X.data**2, minlength=X.shape[1])
    size = np.sqrt(square[count > 0] / count[count > 0])
    if not len(size):
        return ""
    if size.max() > UNEQUAL_FEATURES_FACTOR * size.min():
        return f"the features differ in size by a factor of {size.max() / size.min():.2g}, which is slow: {fix}"
    typical = float(np.sqrt(square.sum() / count.sum()))
    if typical > LARGE_FEATURE_SIZE:
        return f"the features have a typical size of {typical:.2g} instead of about 1, which is slow: {fix}"
    return ""


def edge_advice(model: "GadgetSVC") -> str:
    """Return advice on a graph with too many edges, or an empty text if every edge was used often."""
    if model.gossip_ != "push" or model.network_.n < 2:
        return ""
    uses = model.n_iter_ / max(1.0, len(model.network_.indices) / model.network_.n)
    if uses >= MIN_EDGE_USES:
        return ""
    return f"each edge was used only about {uses:.0f} times: use Pdmm(neighbours='all'), or a graph with fewer edges"


def rest_advice(model: "GadgetSVC", X: sp.csr_matrix) -> str:
    """Return advice if every output answers "rest" for most rows of an even sample, else an empty text."""
    if model.multi_class == "ovo" or len(model.classes_) == 2:
        return ""
    some = np.unique(np.linspace(0, X.shape[0] - 1, REST_SAMPLE_ROWS).astype(np.intp))
    whole = np.hstack([model.coef_, model.intercept_[:, None]]) if model.fit_intercept else model.coef_
    rest = float((X[some] @ whole.T <= 0).all(axis=1).mean())
    if rest < REST_SHARE:
        return ""
    early = "" if model.converged_ else "either the fit stopped too early, or "
    return (
        f"for {_percent(rest)} of a sample of {len(some):,} rows every output answers 'rest', so predictions may be "
        f"little better than chance: {early}the classes overlap too much for one output against the rest; use "
        "multi_class='ovo'"
    )


def not_converged(model: "GadgetSVC", X: sp.csr_matrix | None) -> str:
    """Say how a fit ended before its stopping rule was met, and what would help."""
    limit, apart = str(model.stopped_by_), model.history_[-1]["disagreement"]  # the limit is max_iter or max_seconds
    far = f"; the nodes differ by {_percent(apart)} of the average's length" if apart > FAR_APART else ""
    reached = f"{limit}={getattr(model, limit)} before stopping={model.stopping_!r} was met"
    what_happened = f"stopped at {reached}{_last_value(model)}{far}"
    if X is not None and model.fit_intercept:
        X = X[:, :-1]  # without the constant
    found = mass_advice(model._mass_left), _no_certificate(model), scale_advice(X), edge_advice(model)
    advice = "; ".join(filter(None, found)) or f"raise {limit} or tol"
    return f"{what_happened}. The models so far are kept. To get further: {advice}"


def _last_value(model: "GadgetSVC") -> str:
    """Return the last figure of the stopping rule and its tolerance."""
    if not np.isfinite(model.movement_):
        return " (no bound was certified yet)" if model.stopping_ == "gap" and not model.certificate_note_ else ""
    tol = np.inf if model.tol_ is None else model.tol_
    if model.stopping_ == "gap":
        return f" (the last certified bound was {_percent(model.movement_)}, tol is {_percent(tol)})"
    often = ", and the value must be at most tol in three checks in a row" if model.movement_ <= tol else ""
    return f" (last value {model.movement_:.3g}, tol is {tol:g}{often})"


def _no_certificate(model: "GadgetSVC") -> str:
    """Return why the nodes could not certify a model, or an empty text if they could."""
    if not model.certificate_note_:
        return ""
    if "not finite" in model.certificate_note_:
        return f"no model can be certified, because {model.certificate_note_}: scale features and weights to about 1"
    return f"no model can be certified while {model.certificate_note_}: reconnect the nodes, or use stopping=None"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
