"""From a peer's weights to the model file that `gadget predict` reads: on unscaled features, with names and classes."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.model_file import save_model
from gadget_svm.peers.charter import Charter
from gadget_svm.peers.scale import Scale

Floats = NDArray[np.float64]


def as_model(
    weights: Floats, scale: Scale, charter: Charter, *, name: str, ticks: int, columns: tuple[str, ...] | None = None
) -> GadgetSVC:
    """A fitted estimator of one node; ``weights`` (outputs x width) belong to features scaled by ``scale``."""
    own = weights[:, charter.features].copy() if charter.intercept else np.zeros(charter.outputs)
    coef, intercept = scale.undo(weights[:, : charter.features], own)
    model = GadgetSVC(n_nodes=1, lam=charter.lam, algorithm=charter.algorithm, fit_intercept=charter.intercept)
    classes = np.array(charter.classes)
    if classes.dtype.kind == "f" and np.array_equal(classes, np.rint(classes)):
        classes = classes.astype(np.int64)
    order = np.argsort(classes)  # as scikit-learn keeps them
    if charter.outputs == 1 and order[0] == 1:
        coef, intercept = -coef, -intercept
    elif charter.outputs > 1:
        coef, intercept = coef[order], intercept[order]
    model.classes_ = classes[order]
    model.coef_, model.intercept_ = coef, intercept
    binary = charter.outputs == 1
    model.node_coef_ = coef[:1] if binary else coef[None]
    model.node_intercept_ = intercept[:1] if binary else intercept[None]
    model.n_iter_, model.converged_, model.sites_ = ticks, False, [name]
    model.gap_bound_ = model.output_gap_bounds_ = model.certified_nodes_ = None
    model.lam_, model.stopping_, model.stopped_by_ = charter.lam, None, None
    model.tol_, model.certificate_note_ = None, ""
    model.multi_class_ = model.multi_class
    model.n_features_in_, model.history_ = charter.features, []
    if columns is not None:
        model.feature_names_in_ = np.array(columns, dtype=object)
    return model


def export(
    path: Path, weights: Floats, scale: Scale, charter: Charter, *, name: str, ticks: int,
    columns: tuple[str, ...] | None = None,
) -> Path:  # fmt: skip
    """Write the model file; a half-written one never replaces a good one."""
    save_model(as_model(weights, scale, charter, name=name, ticks=ticks, columns=columns), path)
    return path
