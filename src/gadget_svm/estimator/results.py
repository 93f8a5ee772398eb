"""Sets a model's fitted attributes from the result of a training, and takes one node's model out of them."""

from collections.abc import Hashable
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from gadget_svm.core.types import Floats
from gadget_svm.estimator.fitting import Fitted
from gadget_svm.estimator.sites import in_names, node_number

if TYPE_CHECKING:
    from gadget_svm.estimator.svc import GadgetSVC


def store(model: "GadgetSVC", fitted: Fitted) -> None:
    """Set the fitted attributes."""
    outcome, d = fitted.outcome, model.n_features_in_

    def split(w: Floats) -> tuple[Floats, Floats]:
        return w[..., :d].copy(), w[..., d].copy() if model.fit_intercept else np.zeros(w.shape[:-1])

    binary = len(model.classes_) == 2
    nodes, last = (models[:, 0] if binary else models for models in (fitted.models, fitted.last))
    model.node_coef_, model.node_intercept_ = split(nodes)
    model.node_last_coef_, model.node_last_intercept_ = split(last)
    model.coef_, model.intercept_ = split(fitted.mean)
    earlier = model.history_[-1]["seconds"] if model.history_ else 0.0
    later = [{**record, "seconds": earlier + record["seconds"]} for record in outcome.history]
    model.history_ = model.history_ + later  # a new list: models of single nodes share the old one
    model.n_iter_ += outcome.n_iter
    model.converged_, model.movement_, model.stopped_by_ = outcome.converged, outcome.movement, outcome.reason
    certificate = outcome.certificate
    model.gap_bound_ = None if certificate is None else certificate.relative
    model.output_gap_bounds_ = None if certificate is None else certificate.relatives
    model.certified_nodes_ = None if certificate is None else certificate.nodes
    model.certificate_note_ = in_names(outcome.certificate_note, model.sites_)
    model._state, model.gossip_, model._mass_left = fitted.state, fitted.gossip_name, fitted.mass_left


def single_node(model: "GadgetSVC", site: Hashable) -> "GadgetSVC":
    """Return a copy of the model that has one node only and cannot be trained further."""
    i, single = node_number(model.sites_, site), copy(model)
    single.coef_, single.intercept_ = np.atleast_2d(model.node_coef_[i]), np.atleast_1d(model.node_intercept_[i])
    for name in ("node_coef_", "node_intercept_", "node_last_coef_", "node_last_intercept_", "sites_"):
        if name in model.__dict__:  # a model read from a file has no last iterates
            setattr(single, name, getattr(model, name)[i : i + 1])
    single.__dict__.pop("_state", None)
    return single
