"""Check the options of `gadget train` before any data is read. The rules are those of the parts that use the values."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gadget_svm import algorithms, topologies
from gadget_svm.cli.option_names import naming
from gadget_svm.cli.output_files import check_format
from gadget_svm.cli.scaling import KINDS
from gadget_svm.cli.train_request import (
    Order,
    make_algorithm,
    make_model,
    partition_options,
    stopping_for,
    wanted_settings,
)
from gadget_svm.core.lookup import lookup
from gadget_svm.data.files import require_file
from gadget_svm.estimator.problem import checked_nodes
from gadget_svm.estimator.svc import SEEDS
from gadget_svm.estimator.validation import ENGINES, check_parameters
from gadget_svm.faults import FaultContext, make_faults, wrap_all
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.engine import UNCERTIFIABLE
from gadget_svm.simulation.stopping import stopping_rule

if TYPE_CHECKING:
    from gadget_svm.algorithms import Algorithm
    from gadget_svm.core.network import Network

ANY_NUMBER = 1_000_000
"""Nodes that faults may name where the number of nodes is not known yet."""
LARGEST_BUILT = 1_000
"""Larger networks are not built for a check: it would take longer than reading most files."""


class NoData:
    """Stands for data that has no lam of its own."""

    lam = None


def check_order(order: Order) -> None:
    """Raise ValueError for whatever is wrong whichever rows there are."""
    with naming(f"--engine {order.engine}"):
        lookup("engine", order.engine, ENGINES)
    with naming(f"--algorithm {order.algorithm}"):
        algorithms.resolve(order.algorithm)
    check_format(order.format)
    with naming(f"--partition {order.partition}"):
        sizes = partition_options(order).get("sizes", ())
        if order.nodes not in (None, len(sizes)) and sizes:
            raise ValueError(f"that is {len(sizes)} nodes, and --nodes is {order.nodes}: leave out --nodes")
    with naming(f"--scale {order.scale}"):
        lookup("scaling", order.scale, KINDS)
    if order.nodes is not None:
        checked_nodes(order.nodes)
    if order.drop is not None and not 0 <= order.drop <= 1:
        raise ValueError(f"--drop must be a probability, between 0 and 1, got {order.drop:g}")
    for option, text in order.typed_faults:
        with naming(option):
            wrap_all(make_faults(text), FaultContext(nodes_of(order) or ANY_NUMBER, 0))
    check_parameters(make_model(order, NoData()))
    if order.jobs is not None and order.jobs < -1:
        raise ValueError(f"n_jobs={order.jobs} is no number of threads: use at least 1, or -1 for every core")
    ThreadTeam.of(order.jobs).close()
    if isinstance(order.test, Path):
        require_file(order.test)
    run = _bind(order, _network(order))
    if order.stopping is not None:
        with naming(f"--stopping {order.stopping}"):
            rule = stopping_rule(stopping_for(order), order.tol)
            if rule is not None and rule.certifies and not run.certifiable:
                raise ValueError(UNCERTIFIABLE)


def nodes_of(order: Order) -> int:
    """How many nodes there will be; 0 where that depends on the rows."""
    return order.nodes or len(order.shards) or len(partition_options(order).get("sizes", ()))


def _network(order: Order) -> "Network":
    """The network of this training; one of five nodes where the number is not known yet, or large."""
    with naming(f"--topology {order.topology}"):
        topologies.check_name(order.topology)
        if 0 < (nodes := nodes_of(order)) <= LARGEST_BUILT:
            return topologies.build(order.topology, nodes, seed=order.seed & SEEDS)
    return topologies.build("complete", 5)


def _bind(order: Order, network: "Network") -> Any:
    """The algorithm with its settings checked; an error names the setting that is wrong by itself, if one is."""
    algorithm = make_algorithm(order)
    try:
        return _bound(algorithm, network)
    except (ValueError, TypeError):
        _bound(type(algorithm)(), network)  # where this fails, it is not for a setting
        for name, (typed, value) in wanted_settings(order).items():
            with naming(typed):
                _bound(type(algorithm)().set_params(**{name: value}), network)
        raise


def _bound(algorithm: "Algorithm", network: "Network") -> Any:
    return algorithm.bind(algorithm.with_transition_of(network), 1e-3, 1.0, sizes=np.ones(network.n))
