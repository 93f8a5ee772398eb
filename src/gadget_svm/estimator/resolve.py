"""Resolves a model's parameters before a training: seeds, nodes, network, stopping rule, plan."""

import numbers
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from gadget_svm import topologies
from gadget_svm.algorithms import Algorithm
from gadget_svm.algorithms.params import checked_count
from gadget_svm.core.network import Network
from gadget_svm.data.partition import partition_by_site
from gadget_svm.estimator.fitting import Plan, TrainingProblem
from gadget_svm.estimator.sites import node_names
from gadget_svm.estimator.validation import MAX_SEED, default_stopping, lam_of
from gadget_svm.faults import make_faults
from gadget_svm.simulation.observers import PrintRecords
from gadget_svm.simulation.stopping import stopping_rule
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
    """Name the nodes of a network that learns in batches: as requested, else 10, or the sites of the first batch."""
    requested, labels = requested_nodes(model), topologies.labels_of(model.topology)
    names = node_names(10 if requested is None else checked_count(requested, "n_nodes"), labels)
    return names if sites is None else labels or partition_by_site(sites)[1]  # a batch need not have all the labels


def connect(model: "GadgetSVC", algorithm: Algorithm) -> None:
    """Build the network of the nodes in ``sites_``, with the transition matrix that the algorithm asks for."""
    network = topologies.build(model.topology, len(model.sites_), seed=model._topology_seed)
    model.algorithm_ = algorithm.for_network(network)
    has_matrix = isinstance(model.topology, Network)
    model.network_ = network if has_matrix else model.algorithm_.with_transition_of(network)


def make_plan(model: "GadgetSVC", problem: TrainingProblem, max_iter: int, stopping: Any) -> Plan:
    """Resolve every parameter of a training."""
    chosen = default_stopping(model.algorithm_) if isinstance(stopping, str) and stopping == "auto" else stopping
    rule = stopping_rule(chosen, model.tol)
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
