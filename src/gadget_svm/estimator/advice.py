"""What a user is told about a fit that ended early. Owns every such sentence; each is said only if it was measured."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from gadget_svm.simulation.stopping import stopping_rule

UNEQUAL_FEATURES = 100.0
"""Typical sizes of features that differ by more than this factor slow the solver down."""
LARGE_FEATURES = 5.0
"""Features of a typical size above this one slow the solver down. Standardised features have size 1."""
MASS_KEPT = 0.99
"""Push-Sum that has less than this share of its mass left no longer computes the average."""
FEW_USES = 50
"""An edge that was used less often than this has not carried enough messages to agree."""
FAR_APART = 0.1
"""A disagreement between the nodes that is worth mentioning, as a share of the average's length."""

REST_SHARE, REST_ROWS = 0.9, 1000
"""A fit of several classes warns if every output answers "rest" to this share of a sample of at most so many rows."""

SCALERS = "scale them, for example with StandardScaler, or MaxAbsScaler if they are sparse"


def mass_advice(mass_left: float | None) -> str:
    """The sentence about mass that was lost with messages; empty if the mass is there or is not used."""
    if mass_left is None or mass_left >= MASS_KEPT:
        return ""
    return (
        f"lost messages took {_percent(1 - mass_left)} of the gossip protocol's mass with them, so the nodes no longer "
        "compute averages: use Gadget(gossip='running-sum'), which recovers what was lost, or algorithm='pdmm'"
    )


def scale_advice(X: sp.csr_matrix | None, fix: str = SCALERS) -> str:
    """The sentence about features of unequal or large size, with the ``fix``; empty if they are scaled or unknown."""
    if X is None or not X.nnz:
        return ""
    count = np.bincount(X.indices[X.data != 0], minlength=X.shape[1])
    square = np.bincount(X.indices, weights=X.data**2, minlength=X.shape[1])
    size = np.sqrt(square[count > 0] / count[count > 0])
    if not len(size):
        return ""
    if size.max() > UNEQUAL_FEATURES * size.min():
        return f"the features differ in size by a factor of {size.max() / size.min():.2g}, which is slow: {fix}"
    typical = float(np.sqrt(square.sum() / count.sum()))
    if typical > LARGE_FEATURES:
        return f"the features have a typical size of {typical:.2g} instead of about 1, which is slow: {fix}"
    return ""


def edge_advice(model: Any) -> str:
    """The sentence about a dense graph whose edges were hardly used; empty if every edge was used often."""
    if model.gossip_ != "push" or model.network_.n < 2:
        return ""
    uses = model.n_iter_ / max(1.0, len(model.network_.indices) / model.network_.n)
    if uses >= FEW_USES:
        return ""
    return f"each edge was used only about {uses:.0f} times: use Pdmm(neighbours='all'), or a graph with fewer edges"


def rest_advice(model: Any, X: sp.csr_matrix) -> str:
    """The sentence about classes that no output recognises, from an even sample of the rows; empty if few."""
    if model.multi_class == "ovo" or len(model.classes_) == 2:
        return ""
    some = np.unique(np.linspace(0, X.shape[0] - 1, REST_ROWS).astype(np.intp))
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


def not_converged(model: Any, X: sp.csr_matrix | None, mass_left: float | None) -> str:
    """What happened, and what would help, for a fit that ended before its stopping rule was met."""
    limit = {"max_iter": f"max_iter={model.max_iter}", "max_seconds": f"max_seconds={model.max_seconds}"}
    stopped_by = limit.get(model.stopped_by_, model.stopped_by_)
    apart = model.history_[-1]["disagreement"]
    far = f"; the nodes differ by {_percent(apart)} of the average's length" if apart > FAR_APART else ""
    told = f"stopped at {stopped_by} before stopping={model.stopping_!r} was met{_seen(model)}{far}"
    if X is not None and model.fit_intercept:
        X = X[:, :-1]  # without the constant
    causes = [text for text in (mass_advice(mass_left), _refused(model), scale_advice(X), edge_advice(model)) if text]
    if not causes:
        name = model.stopped_by_ if model.stopped_by_ in limit else "max_iter"
        causes = [f"raise {name} or tol"]
    return f"{told}. The models so far are kept. To get further: {'; '.join(causes)}"


def _seen(model: Any) -> str:
    """The last figure of the stopping rule beside its tolerance."""
    if not np.isfinite(model.movement_):
        return " (no bound was certified yet)" if model.stopping_ == "gap" and not model.remark_ else ""
    rule = stopping_rule(model.stopping_, model.tol)
    tol = np.inf if rule is None else rule.tol
    if model.stopping_ == "gap":
        return f" (the last certified bound was {_percent(model.movement_)}, tol is {_percent(tol)})"
    often = ", and the value must be at most tol in three checks in a row" if model.movement_ <= tol else ""
    return f" (last value {model.movement_:.3g}, tol is {tol:g}{often})"


def _refused(model: Any) -> str:
    """Why the nodes could not certify a model, where more iterations would not help."""
    if not model.remark_:
        return ""
    if "not finite" in model.remark_:
        return f"no model can be certified, for {model.remark_}: scale features and weights to about 1"
    return f"no model can be certified while {model.remark_}: reconnect the nodes, or use stopping=None"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
