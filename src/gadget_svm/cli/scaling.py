"""`gadget train --scale`: scale features by statistics of the training rows, and save a model of unscaled features.

The arithmetic is that of the peers, which needs none of their packages.
"""

from copy import copy
from dataclasses import replace

import numpy as np

from gadget_svm.data import Dataset
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.advice import scale_advice
from gadget_svm.peers.scale import Scale, common_scale, statistics

KINDS = {"none": "as they are", "deviation": "divided by the deviation", "max-abs": "divided by the largest magnitude"}

OPTIONS = "scale them with --scale deviation, or --scale max-abs if they are sparse"


def scale_for(kind: str, data: Dataset, intercept: bool) -> Scale | None:
    """Compute the scale from the training rows; None for the kind "none"."""
    if kind == "none":
        return None
    scale = common_scale(kind, [statistics(kind, "all", data.X)], shifts=intercept)
    if not np.isfinite(scale.divisor).all():
        raise ValueError(f"--scale {kind}: the squares of the features overflow: use --scale max-abs")
    return scale


def scaled(data: Dataset, scale: Scale | None) -> Dataset:
    """Return the data with training and test rows scaled; what is sparse stays sparse."""
    if scale is None:
        return data
    return replace(data, X=scale.apply(data.X), X_test=None if data.X_test is None else scale.apply(data.X_test))


def unscaled(model: GadgetSVC, scale: Scale | None) -> GadgetSVC:
    """Return a copy of the model that gives the same answers for unscaled features, to be saved."""
    if scale is None:
        return model
    plain = copy(model)
    plain.coef_, plain.intercept_ = scale.undo(model.coef_, model.intercept_)
    plain.node_coef_, plain.node_intercept_ = scale.undo(model.node_coef_, model.node_intercept_)
    return plain


def scaling_hints(model: GadgetSVC, data: Dataset | None) -> list[str]:
    """Suggest --scale after a training that did not converge, if sizes of features explain it."""
    if data is None or model.stopped_by_ not in ("max_iter", "max_seconds") or model.stopping_ is None:
        return []
    advice = scale_advice(data.X, OPTIONS)
    return [advice[0].upper() + advice[1:] + "."] if advice else []
