"""Turns a user's arrays into the nodes' problem: CSR rows, class numbers, weights, and each node's rows."""

import numbers
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from gadget_svm.algorithms.base import checked_count
from gadget_svm.core.lookup import in_order
from gadget_svm.core.rows import Objective, Rows, Shares
from gadget_svm.core.types import Array, Floats, Indices, Ints
from gadget_svm.data.partition import are_counts, partition_by_position, partition_by_site, partition_evenly
from gadget_svm.data.tables import dense_to_csr
from gadget_svm.kernels import ThreadTeam
from gadget_svm.kernels.rows import NO_PAIRS

Names = Sequence[Hashable]
MAX_KEPT_SHARE = 0.8
"""Features that occur in no row are left out of the computation if at most this share of all features is kept."""


@dataclass(frozen=True)
class Problem:
    """All rows with their labels and weights, and which node owns which.

    Parameters
    ----------
    X : csr_matrix
        The rows, with the constant feature if there is an intercept.
    label : ndarray of int
        The class number of every row.
    times : ndarray or None
        The weight of every row, s_r c_r (sample weight times class weight), which counts as its multiplicity; None: 1.
    shares : Shares
        Which node owns which rows.
    sites : list
        The nodes' labels.
    n_outputs : int
        One for two classes; else one per class, or one per pair of classes.
    pairs : ndarray, default empty
        The two classes of every output, if outputs are one against one.
    intercept : bool, default False
        Whether the last feature is the constant 1.
    cost : ndarray or None, default None
        With a privacy budget: the weight of every row's loss, which does not count as its multiplicity; None: 1.
    """

    X: sp.csr_matrix
    label: Indices
    times: Floats | None
    shares: Shares
    sites: list[Hashable]
    n_outputs: int
    pairs: Indices = field(default_factory=lambda: NO_PAIRS)
    intercept: bool = False
    cost: Floats | None = None
    runtime: None = None
    """Always None: this process has the rows, see `fitting.TrainingProblem`."""

    @property
    def rows(self) -> Rows:
        """The rows in the form the kernels read."""
        return Rows.of(self.X, self.label, self._cost, self.shares, self.pairs, self.intercept_unit)

    @property
    def _cost(self) -> Floats:
        return np.ones(len(self.label)) if self.cost is None else self.cost

    @cached_property
    def intercept_unit(self) -> float:
        """The unit of the constant feature, see `Rows`; rows of weight 0 do not count."""
        if not self.intercept:
            return 0.0
        squares = self.X.data**2
        squares[self.X.indptr[1:] - 1] = 0.0  # the constant
        squares = np.add.reduceat(squares, self.X.indptr[:-1])
        return Lengths.of(squares if self.times is None else squares[self.times > 0]).intercept_unit()

    def occurring(self) -> "tuple[Problem, Ints]":
        """Return the problem without the features that occur in no row, and the numbers of the features it keeps.

        If few features would be left out, it keeps all.
        """
        rows, width = self.X.shape
        if rows and np.diff(self.X.indptr).max() == width:  # one row has them all
            return self, np.arange(width)
        used = np.flatnonzero(np.bincount(self.X.indices, minlength=width))
        if len(used) > MAX_KEPT_SHARE * width:
            return self, np.arange(width)
        position = np.zeros(width, dtype=self.X.indices.dtype)
        position[used] = np.arange(len(used))
        narrow = self.X.data, position[self.X.indices], self.X.indptr
        return replace(self, X=sp.csr_matrix(narrow, shape=(rows, len(used)))), used

    def objective(self, lam: float, team: ThreadTeam) -> Objective:
        """Return the function that measures models on all rows."""
        times = np.ones(len(self.label)) if self.times is None else self.times
        return Objective(self.X, self.label, self._cost, times, lam, self.n_outputs, team, self.pairs)


INTERCEPT_UNIT = 0.2
"""The unit of the constant feature as a share of the length of a typical row."""


class Lengths(NamedTuple):
    """The number of rows that are not empty, and the sum of their log2 |x|. Both can be added over shards."""

    n_rows: float
    logs: float

    @classmethod
    def of(cls, squares: Floats) -> "Lengths":
        """Return the sums for rows whose squared lengths |x|^2 are given."""
        squares = squares[squares > 0]
        return cls(len(squares), 0.5 * float(np.log2(squares).sum()))

    def intercept_unit(self) -> float:
        """Return the unit of the constant feature, a share of the geometric mean of |x|. Long rows hardly change it.

        It is a power of two, so it does not depend on the order of summation and causes no rounding error.
        """
        return float(2.0 ** np.round(np.log2(INTERCEPT_UNIT) + self.logs / self.n_rows)) if self.n_rows else 1.0


def outputs_of(n_classes: int, multi_class: str) -> tuple[int, Indices]:
    """Return the number of outputs, and the two classes of each output (none, unless outputs are one against one).

    Pairs are in the order of scikit-learn's OneVsOneClassifier, and the later class of a pair is +1. Two classes need
    one output.
    """
    if multi_class != "ovo" or n_classes == 2:
        return 1 if n_classes == 2 else n_classes, NO_PAIRS
    pairs = [(j, i) for i in range(n_classes) for j in range(i + 1, n_classes)]
    return len(pairs), np.array(pairs, dtype=np.int32)


def as_csr(X: Any, intercept: bool) -> sp.csr_matrix:
    """Return X as float64 CSR with 32-bit indices where they fit, and with a column of ones for an intercept.

    CSR rows are not copied, or only once if there is an intercept.
    """
    sparse: Any = X if sp.issparse(X) else dense_to_csr(np.atleast_2d(np.asarray(X, dtype=np.float64)))
    csr = sp.csr_matrix(sparse, dtype=np.float64)
    csr = sp.csr_matrix((csr.data, csr.indices, csr.indptr), shape=csr.shape)  # this chooses the shortest indices
    parts = (csr.data, csr.indices, csr.indptr)
    if not (csr.has_canonical_format and all(part.flags.writeable and part.flags.c_contiguous for part in parts)):
        csr = csr.copy()  # a feature that occurs twice would count as two; a memory map compiles kernels again
        csr.sum_duplicates()
    if csr.nnz and max(csr.data.max(), -csr.data.min()) > 1e150:
        raise ValueError("features beyond 1e150 overflow when squared: scale them, for example with StandardScaler")
    return _with_constant(csr) if intercept else csr


def _with_constant(csr: sp.csr_matrix) -> sp.csr_matrix:
    """Append a 1 to every row."""
    (rows, columns), ends = csr.shape, csr.indptr[1:]
    data, indices = np.insert(csr.data, ends, 1.0), np.insert(csr.indices, ends, columns)
    return sp.csr_matrix((data, indices, csr.indptr + np.arange(rows + 1)), shape=(rows, columns + 1))


def clip_rows(X: sp.csr_matrix, norm: float) -> sp.csr_matrix:
    """Return X with longer rows scaled down to this norm. A linear model's answers do not depend on a row's length."""
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    size = np.minimum(1.0, norm / np.maximum(lengths, 1e-300))
    return sp.csr_matrix((X.data * np.repeat(size, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)


def row_weights(class_weight: Any, classes: Array, label: Indices, times: Floats | None) -> Floats | None:
    """Return s_r c_r of every row, its sample weight times the weight of its class; None if there are no weights.

    "balanced" means the same as in scikit-learn: sum of all s_r / (number of classes * sum of s_r in the class).
    """
    if class_weight is None:
        return times
    if isinstance(class_weight, str) and class_weight != "balanced":
        known = "'balanced', a dict such as {label: 2.0}, or None"
        raise ValueError(f"class_weight must be {known}; got {class_weight!r}")
    from sklearn.utils.class_weight import compute_class_weight  # here: actors run without scikit-learn

    per_class = compute_class_weight(class_weight, classes=classes, y=classes[label], sample_weight=times)
    if not (np.isfinite(per_class).all() and (per_class >= 0).all() and per_class.max() > 0):
        raise ValueError(f"class weights must be numbers, none negative and not all zero; got {class_weight!r}")
    weights = np.asarray(per_class, dtype=np.float64)[label]
    return weights if times is None else weights * times


def share_rows(
    X: sp.csr_matrix, label: Indices, n_nodes: int | None, seed: int, times: Floats | None,
    sites: ArrayLike | None, labels: list[Hashable] | None = None, by_position: bool = False,
) -> tuple[Shares, list[Hashable]]:  # fmt: skip
    """Assign rows to nodes: by ``sites``, else evenly over ``n_nodes``; every node gets at least one row.

    With ``by_position``, the assignment does not depend on the content of the rows. If the graph's nodes have
    ``labels``, the sites are matched to them. Returns the shares and the nodes' labels.
    """
    if sites is not None:
        shares, names = partition_by_site(one_per_row(sites, label), times)
        if labels is not None:
            check_labels(names, labels)
            shares, names = partition_by_site(sites, times, labels)
        empty = [names[i] for i in np.flatnonzero(np.diff(shares.start) == 0)]
        if empty:
            raise ValueError(f"site {empty[0]!r} has no rows of positive weight: leave it out, or give it some")
        return shares, names
    available = _available(label, times)
    count = min(10, available) if n_nodes is None else checked_count(n_nodes, "n_nodes")
    if count > available:
        raise ValueError(f"n_nodes={count} is more than the {available} rows: every node needs at least one row")
    if by_position:
        return partition_by_position(len(label), count, seed), node_names(count, labels)
    return partition_evenly(X, label, count, seed, times), node_names(count, labels)


def share_batch(
    X: sp.csr_matrix, label: Indices, nodes: list[Hashable], seed: int, times: Floats | None,
    sites: ArrayLike | None,
) -> Shares:  # fmt: skip
    """Assign the rows of a further batch to the existing ``nodes``; some nodes may get no rows."""
    if sites is not None:
        return partition_by_site(one_per_row(sites, label), times, nodes)[0]
    return partition_evenly(X, label, len(nodes), seed, times)


def one_per_row(sites: Any, label: Indices) -> Any:
    """Return ``sites``, or raise if it does not have one label per row."""
    if isinstance(sites, str) or not hasattr(sites, "__len__"):
        raise TypeError(f"sites needs one label per row, such as a column of the table; got {sites!r}")
    shape = getattr(sites, "shape", (len(sites),))
    if len(shape) != 1:
        raise ValueError(f"sites has the shape {shape}: give a single column, one label per row")
    if len(sites) != len(label):
        raise ValueError(f"sites has {len(sites)} entries for {len(label)} rows: give the site of every row")
    return sites


def _available(label: Indices, times: Floats | None) -> int:
    """Count the rows that can be assigned. Weights that are whole numbers count as copies."""
    if times is None:
        return len(label)
    positive = times[times > 0]
    return int(positive.sum()) if are_counts(positive) else len(positive)


MAX_LISTED_LABELS = 10
"""An error lists at most this many labels of sites, and at most this many labels of nodes."""


def node_names(count: int, labels: list[Hashable] | None) -> list[Hashable]:
    """Return the labels of nodes without sites: the labels in the graph, else 0 to count - 1."""
    return labels if labels is not None and len(labels) == count else list(range(count))


def check_labels(sites: Names, labels: Names) -> None:
    """Raise if the sites are not exactly the nodes of the graph; the message lists what is missing on each side."""
    known, used = set(labels), set(sites)
    unknown, unused = [site for site in sites if site not in known], [each for each in labels if each not in used]
    if not (unknown or unused):
        return
    text = "the sites and the nodes of the graph have different labels"
    text += f". Sites without a node: {_listed(unknown)}" * bool(unknown)
    text += f". Nodes without a site: {_listed(unused)}" * bool(unused)
    if unknown and {str(site) for site in unknown} == {str(each) for each in unused}:
        one, other = type(unknown[0]).__name__, type(unused[0]).__name__
        text += f". Sites are of type {one}, nodes of type {other}: relabel with networkx.relabel_nodes(graph, {one})"
    raise ValueError(text)


def name_shards(shards: Sequence[Any], sites: Names | None, labels: Names | None) -> tuple[list[Any], list[Hashable]]:
    """Return the shards in the order of the nodes, and the nodes' labels."""
    if sites is None:
        if labels is not None and set(labels) != set(range(len(shards))):
            raise ValueError(
                f"the nodes of the graph are {_listed(labels)} and the shards have no names: write "
                "fit_shards(shards, sites=[...]) with the name of each shard"
            )
        sites = range(len(shards))
    names = list(sites)
    if len(names) != len(shards) or len(set(names)) != len(names):
        raise ValueError(f"{len(shards)} shards need {len(shards)} different sites, got {len(names)}: {_listed(names)}")
    if labels is not None:
        check_labels(names, labels)
    shard_of = dict(zip(names, shards, strict=True))
    order = in_order(names) if labels is None else list(labels)
    return [shard_of[name] for name in order], order


def node_number(names: Names, site: Any) -> int:
    """Return the position of the node with this label. An integer is a position if no label is a number."""
    if site in names:
        return names.index(site)
    position = isinstance(site, numbers.Integral) and not isinstance(site, bool)
    by_position = len(names) == 1 or not any(isinstance(name, numbers.Number) for name in names)
    if position and by_position and 0 <= site < len(names):
        return int(site)
    known = f"0 to {len(names) - 1}" if list(names) == list(range(len(names))) else _listed(names)
    raise IndexError(f"there is no node {site!r}: the nodes are {known}")


def in_names(text: str, names: Names) -> str:
    """Replace the numbers of nodes in a message by their labels."""
    return re.sub(r"\bnode (\d+)", lambda found: f"node {names[int(found[1])]!r}", text)


def _listed(labels: Names) -> str:
    more = f" and {len(labels) - MAX_LISTED_LABELS} more" if len(labels) > MAX_LISTED_LABELS else ""
    return ", ".join(repr(label) for label in labels[:MAX_LISTED_LABELS]) + more
