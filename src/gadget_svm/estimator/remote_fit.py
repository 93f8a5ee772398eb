"""Trains from shards that actors read: files, URIs or a Ray Dataset, one shard per node.

Runs in the driver. Owns the common width, numbering, classes and weights of the shards: they are the same as if one
process read all shards. No rows pass through the driver, only widths, labels and counts.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets

from gadget_svm import algorithms, topologies
from gadget_svm.cluster.connection import Cluster, call_within
from gadget_svm.cluster.driver import RayRuntime
from gadget_svm.cluster.options import RayOptions
from gadget_svm.core.rows import Shares
from gadget_svm.core.types import Array, Flags, Ints
from gadget_svm.data.formats import align_tables, ids_from_zero, warn_guessed_label
from gadget_svm.data.tables import binarize_labels
from gadget_svm.data.uris import display_name
from gadget_svm.estimator.attributes import connect, make_plan, requested_nodes, reset
from gadget_svm.estimator.fitting import Fitted, fit_network
from gadget_svm.estimator.problem import MAX_KEPT_SHARE, Lengths, node_names, outputs_of, row_weights
from gadget_svm.estimator.shards import CommonFormat, DataSummary, Shards, is_dataset, shard_names, warn_of_kinds
from gadget_svm.estimator.validation import require_two
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.runtime import Evaluator

if TYPE_CHECKING:
    from gadget_svm.estimator.svc import GadgetSVC


def fit_remote(
    model: "GadgetSVC", shards: Any, names: list[Hashable] | None = None, label: str | None = None,
    positive: str | None = None, on_summary: Callable[[DataSummary], None] | None = None,
) -> Fitted:  # fmt: skip
    """Train a model from shards that the actors of a cluster read; ``names`` are the labels of the nodes."""
    if model.engine != "ray":
        raise ValueError("a Ray Dataset is read by Ray's actors: use engine='ray'")
    runtime = start(shards, requested_nodes(model), label, dict(model.engine_options or {}))
    try:
        params = model.class_weight, model.fit_intercept, positive, model.multi_class
        problem, model.classes_, summary = remote_problem(runtime, *params)
        if on_summary is not None:
            on_summary(summary)
        model.n_features_in_ = problem.X.shape[1] - bool(model.fit_intercept)
        model.__dict__.pop("feature_names_in_", None)
        reset(model)
        labels = topologies.labels_of(model.topology)
        model.sites_ = node_names(len(problem.shares.start) - 1, labels) if names is None else names
        connect(model, algorithms.resolve(model.algorithm))
        return fit_network(problem, make_plan(model, problem, model.max_iter, model.stopping))
    finally:
        runtime.close()


@dataclass(frozen=True)
class RemoteProblem:
    """A problem whose rows are in the actors of ``runtime``."""

    runtime: RayRuntime
    X: sp.csr_matrix  # no rows; its width is the number of features
    shares: Shares  # one row per node, which has the total weight of the node's rows
    n_outputs: int
    used: Flags

    def occurring(self) -> "tuple[RemoteProblem, Ints]":
        """Do the same as `Problem.occurring`, in the actors."""
        used = np.flatnonzero(self.used)
        if len(used) > MAX_KEPT_SHARE * len(self.used):
            return self, np.arange(len(self.used))
        self.runtime.ask("keep_columns", used)
        return replace(self, X=sp.csr_matrix((0, len(used)))), used

    def objective(self, lam: float, team: ThreadTeam) -> Evaluator:  # noqa: ARG002
        """Return the objective, which the actors compute."""
        return lambda models: self.runtime.evaluate(models, lam)


def remote_problem(
    runtime: RayRuntime, class_weight: Any, intercept: bool, positive: str | None = None, multi_class: str = "ovr"
) -> tuple[RemoteProblem, Array, DataSummary]:
    """Return the problem of all shards together, its classes, and a summary of the shards."""
    names, summaries = runtime.names, [summary for part in runtime.ask("summarize") for summary in part]
    tables = [replace(summary.table, X=summary.table.X.copy()) for summary in summaries]  # Ray's are read-only
    width = int(align_tables([Path(name) for name in names], tables, None, None)[0][0].shape[1])
    zero_based = ids_from_zero(tables)
    warn_guessed_label(names[0], tables[0].guessed)
    warn_of_kinds(names, [summary.labels for summary in summaries])
    labels, number = np.unique(np.concatenate([summary.labels for summary in summaries]), return_inverse=True)
    signs = binarize_labels(labels, positive)
    classes, merged = np.unique(signs, return_inverse=True)
    check_classification_targets(classes)
    require_two(classes)
    counts = np.bincount(merged[number], np.concatenate([summary.counts for summary in summaries])).astype(np.int64)
    weight = row_weights(class_weight, classes, np.repeat(np.arange(len(classes)), counts), None)
    weight = None if weight is None else weight[np.cumsum(counts) - 1]
    outputs, pairs = outputs_of(len(classes), multi_class)
    lengths = [length for summary in summaries for length in summary.lengths]
    positive_weight = np.ones(len(number), bool) if weight is None else weight[merged[number]] > 0
    unit = Lengths(*np.array(lengths)[positive_weight].sum(axis=0)).intercept_unit() if intercept else 0.0
    common = CommonFormat(width, not zero_based, labels, weight, unit, None if positive is None else merged, pairs)
    found = runtime.ask("convert", common)
    used, sizes = np.logical_or.reduce([part[0] for part in found]), np.concatenate([part[1] for part in found])
    if weight is not None and not sizes.all():
        name = names[int(np.argmin(sizes))]
        raise ValueError(f"shard {name} has no rows of positive weight: leave it out, or change class_weight")
    problem = RemoteProblem(
        runtime, sp.csr_matrix((0, len(used))), Shares(np.arange(len(sizes)), np.arange(len(sizes) + 1), sizes),
        outputs, used,
    )  # fmt: skip
    rows = np.array([summary.rows for summary in summaries], dtype=np.int64)
    return problem, classes, DataSummary(rows, width, zero_based, tables[0].columns, labels)


def start(shards: Any, nodes: int | None, label: str | None, options: dict[str, Any]) -> RayRuntime:
    """Connect to Ray, and return a runtime whose actors will read these shards, one shard per node.

    The rows of a Ray Dataset are split evenly over the ``nodes``, in order.
    """
    tables: list[list[Any]] = []
    names = [] if is_dataset(shards) else shard_names(shards)
    cluster = Cluster(RayOptions.of(options))
    try:
        if is_dataset(shards):
            what = "share out the Dataset's rows (its tasks need free CPUs on the cluster)"
            tables = call_within(cluster.options.start_timeout, what, lambda: _tables(cluster.ray, shards, nodes))
            names = [f"part {i} of the dataset" for i in range(len(tables))]
    except BaseException:
        cluster.close()
        raise
    runtime = RayRuntime(cluster, len(names), lambda a, b: Shards(names[a:b], tables[a:b], label))
    runtime.names = [display_name(name) for name in names]
    return runtime


def _tables(ray: Any, dataset: Any, nodes: int | None) -> list[list[Any]]:
    """Return references to the tables of every node's part. Ray computes them now, before actors take the CPUs."""
    count = dataset.count()
    nodes = min(10, count) if nodes is None else nodes
    if nodes > count:
        raise ValueError(f"n_nodes={nodes} is more than the {count} rows: every node needs at least one row")
    cuts = [count * i // nodes for i in range(1, nodes)]
    parts = dataset.split_at_indices(cuts) if cuts else [dataset.materialize()]
    tables = [part.to_arrow_refs() for part in parts]
    refs = [ref for part in tables for ref in part]
    ray.wait(refs, num_returns=len(refs), fetch_local=False)
    return tables
