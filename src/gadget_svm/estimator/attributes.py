"""Sets the attributes of a model: those that a fit resolves before the training, and those that hold its result."""

import numbers
from collections.abc import Hashable
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from gadget_svm import topologies
from gadget_svm.algorithms.base import Algorithm, checked_count
from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats
from gadget_svm.data.partition import partition_by_site
from gadget_svm.estimator.fitting import Fitted, Plan, TrainingProblem
from gadget_svm.estimator.problem import in_names, node_names, node_number
from gadget_svm.estimator.validation import MAX_SEED, default_stopping, lam_of
from gadget_svm.faults import make_faults
from gadget_svm.privacy import epsilon_of
from gadget_svm.simulation.runtime import PrintRecords
from gadget_svm.simulation.stopping import RoundsDone, StoppingRule, stopping_rule
from gadget_svm.simulation.trainer import Schedule

if TYPE_CHECKING:
    from gadget_svm.estimator.svc import GadgetSVC


def reset(model: "GadgetSVC") -> None:
    """Draw the seeds and forget earlier fits."""
    state = model.random_state
    drawn = state if isinstance(state, numbers.Integral) else check_random_state(state).randint(2**31 - 1)
    model._seed, model._requested_nodes = int(drawn) & MAX_SEED, model.n_nodes
    model._topology_seed = model._seed if model.topology_seed is None else model.topology_seed
    model._partition_seed = model._seed if model.partition_seed is None else model.partition_seed
    model._state, model.history_, model.n_iter_ = None, [], 0


def requested_nodes(model: "GadgetSVC") -> int | None:
    """Return the number of nodes that was requested, else the number that the given graph has."""
    return topologies.nodes_of(model.topology) if model.n_nodes is None else model.n_nodes


def sites_of_batches(model: "GadgetSVC", sites: ArrayLike | None) -> list[Hashable]:
    """Return the labels of the nodes of a network that learns in batches.

    With ``sites``, the nodes are those of the given graph, or else the sites of the first batch. Without ``sites``,
    there are as many nodes as requested, or 10 if no number was requested.
    """
    requested, labels = requested_nodes(model), topologies.labels_of(model.topology)
    names = node_names(10 if requested is None else checked_count(requested, "n_nodes"), labels)
    return names if sites is None else labels or partition_by_site(sites)[1]  # a batch need not have all the labels


def connect(model: "GadgetSVC", algorithm: Algorithm) -> None:
    """Build the network of the nodes in ``sites_``, with the transition matrix that the algorithm asks for."""
    network = topologies.build(model.topology, len(model.sites_), seed=model._topology_seed)
    model.algorithm_ = algorithm.for_network(network)
    if model.privacy is not None:
        model.algorithm_ = algorithm.with_privacy(model.privacy)
    has_matrix = isinstance(model.topology, Network)
    model.network_ = network if has_matrix else model.algorithm_.with_transition_of(network)


def make_plan(model: "GadgetSVC", problem: TrainingProblem, max_iter: int, stopping: Any) -> Plan:
    """Resolve every parameter of a training."""
    if isinstance(stopping, str) and stopping == "auto":
        chosen = "rounds" if model.privacy is not None else default_stopping(model.algorithm_)
    else:
        chosen = stopping
    rule = _planned_rounds(model, problem) if chosen == "rounds" else stopping_rule(chosen, model.tol)
    model.stopping_ = chosen if chosen is None or isinstance(chosen, str) else type(chosen).__name__
    model.tol_ = None if rule is None else rule.tol
    model.multi_class_ = model.multi_class
    model.lam_ = lam_of(model, float(problem.shares.sizes.sum()))
    first_iteration = 0 if model._state is None else model._state.t
    return Plan(
        model.algorithm_, model.network_, model.lam_, model._seed, rule,
        Schedule(max_iter, model.max_seconds, model.record_every, first_iteration),
        (*(model.observers or ()), *((PrintRecords(),) if model.verbose else ())), make_faults(model.faults),
        model.n_jobs, model.engine, dict(model.engine_options or {}), model.sites_,
    )  # fmt: skip


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
    model.privacy_ = _spent(model, fitted)
    model.certificate_note_ = in_names(outcome.certificate_note, model.sites_)
    model._state, model.gossip_, model._mass_left = fitted.state, fitted.gossip_name, fitted.mass_left


def _planned_rounds(model: "GadgetSVC", problem: TrainingProblem) -> StoppingRule:
    """Return the rule of a private training, whose rounds are planned from public numbers."""
    rows, dimension = float(problem.shares.sizes.sum()), problem.n_outputs * problem.X.shape[1]
    return RoundsDone(model.privacy.plan(len(model.sites_), rows, dimension).rounds)  # type: ignore[union-attr]


def _spent(model: "GadgetSVC", fitted: Fitted) -> dict[str, Any] | None:
    """Return how much of its privacy budget a training has spent; None if it has no budget."""
    privacy = model.privacy
    if privacy is None:
        return None
    plan = privacy.plan(len(model.sites_), float(fitted.state.n.sum()), fitted.mean.size)
    rounds = int(fitted.state.steps.max(initial=0))
    return {
        "epsilon": epsilon_of(np.sqrt(rounds) / plan.noise_multiplier, privacy.delta), "delta": privacy.delta,
        "clip": privacy.clip, "rounds": rounds, "planned_rounds": plan.rounds,
        "noise_multiplier": plan.noise_multiplier, "noise": privacy.noise,
    }  # fmt: skip


def single_node(model: "GadgetSVC", site: Hashable) -> "GadgetSVC":
    """Return a copy of the model that has one node only and cannot be trained further."""
    i, single = node_number(model.sites_, site), copy(model)
    single.coef_, single.intercept_ = np.atleast_2d(model.node_coef_[i]), np.atleast_1d(model.node_intercept_[i])
    for name in ("node_coef_", "node_intercept_", "node_last_coef_", "node_last_intercept_", "sites_"):
        if name in model.__dict__:  # a model read from a file has no last iterates
            setattr(single, name, getattr(model, name)[i : i + 1])
    single.__dict__.pop("_state", None)
    return single
