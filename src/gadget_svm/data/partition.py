"""Partitions rows among nodes: evenly, by the user's sites, by unequal sizes, or skewed by label. Always seeded.

Even partitions depend on a hash of each row's content, not on its position: neither the order of a file nor whether a
row is repeated or weighted changes what a node learns.
"""

import numbers
from collections.abc import Callable, Hashable, Sequence
from inspect import signature
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from gadget_svm.core.lookup import in_order, lookup
from gadget_svm.core.rows import Shares
from gadget_svm.core.types import Array, Floats, Indices, Ints
from gadget_svm.kernels.rows import hash_rows

UNWEIGHTED = np.empty(0)


def partition_evenly(X: sp.csr_matrix, label: Indices, n_nodes: int, seed: int, times: Floats | None = None) -> Shares:
    """Assign rows to nodes in turn, in the order of their hash.

    Parameters
    ----------
    X : the rows.
    label : class index of every row.
    n_nodes : number of nodes.
    seed : seed of the hash.
    times : weights of the rows. Whole numbers count as repetitions, and the copies are assigned like rows; other
        weights stay with their row. A row of weight 0 is left out. Default: every row once.
    """
    order = np.argsort(hash_rows(X.indptr, X.indices, X.data.view(np.uint64), label, seed), kind="stable")
    if times is not None:
        order = order[times[order] > 0]
        if are_counts(times[order]):
            return _partition_copies(order, times[order].astype(np.int64), n_nodes)
    rows, start = _group(order, np.arange(len(order)) % n_nodes, n_nodes)
    return Shares(rows, start, UNWEIGHTED if times is None else times[rows])


def partition_by_position(n_rows: int, n_nodes: int, seed: int) -> Shares:
    """Assign rows to nodes in turn, in a random order that does not depend on what is in the rows.

    For private training: if a row is replaced, all others stay where they are.
    """
    rows, start = _group(np.random.default_rng(seed).permutation(n_rows), np.arange(n_rows) % n_nodes, n_nodes)
    return Shares(rows, start, UNWEIGHTED)


def are_counts(weights: Floats) -> bool:
    """Return whether weights are whole numbers: each says how often its row occurs."""
    return bool(weights.sum() < 2**53) and np.array_equal(weights, np.round(weights))


def _partition_copies(order: Ints, count: Ints, n_nodes: int) -> Shares:
    """Assign copies to nodes in turn; row order[q] has count[q] copies."""
    holders = np.minimum(count, n_nodes)
    at = np.repeat(np.cumsum(count) - count, holders)
    nth = np.arange(holders.sum()) - np.repeat(np.cumsum(holders) - holders, holders)
    whole, rest = np.repeat(count // n_nodes, holders), np.repeat(count % n_nodes, holders)
    node, copies = (at + nth) % n_nodes, whole + (nth < rest)
    by_node, start = _group(np.arange(len(node)), node, n_nodes)
    times = copies[by_node].astype(np.float64)
    return Shares(np.repeat(order, holders)[by_node], start, UNWEIGHTED if (times == 1).all() else times)


def _group(rows: Ints, node: Ints, n_nodes: int) -> tuple[Ints, Ints]:
    """Return the rows sorted by node, and where each node's rows start."""
    counts = np.bincount(node, minlength=n_nodes)
    return rows[np.argsort(node, kind="stable")], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def partition_by_site(
    sites: ArrayLike, times: Floats | None = None, known: list[Hashable] | None = None
) -> tuple[Shares, list[Hashable]]:
    """Assign every row to the node of its site.

    Parameters
    ----------
    sites : site of every row, a text or a number.
    times : weights of the rows; a row of weight 0 is left out. Default: every row once.
    known : the sites in the order of the nodes. Default: the sorted sites.

    Returns
    -------
    shares : the rows of every node.
    names : the sites in the order of the nodes.

    Raises
    ------
    ValueError
        If a row has no site, or its site is not ``known``.
    """
    names, node = _codes(sites)
    if known is not None:
        number = {name: i for i, name in enumerate(known)}
        unknown = [name for name in names if name not in number]
        if unknown:
            raise ValueError(f"unknown site {unknown[0]!r}: the nodes of this network are {known}")
        node = np.array([number[name] for name in names], dtype=np.int64)[node]
        names = known
    rows = np.arange(len(node)) if times is None else np.flatnonzero(times > 0)
    order, start = _group(rows, node[rows], len(names))
    return Shares(order, start, UNWEIGHTED if times is None else times[order]), names


def _codes(sites: ArrayLike) -> tuple[list[Hashable], Ints]:
    """Return the distinct sites (sorted if they can be compared) and the index of every row's site."""
    labels: list[Any] = sites.tolist() if isinstance(sites, np.ndarray) else list(sites)  # type: ignore[arg-type]
    try:
        distinct = in_order(labels)
    except TypeError as error:
        raise TypeError(f"sites needs one label per row, a text or a number ({error})") from None
    if any(_is_missing(name) for name in distinct):
        raise ValueError("sites has missing values (None or NaN): give every row a site, or leave these rows out")
    index = {name: i for i, name in enumerate(distinct)}
    return distinct, np.array([index[name] for name in labels], dtype=np.int64)


def _is_missing(name: Any) -> bool:
    """Return whether this is None, NaN, or the missing value of pandas."""
    return name is None or (isinstance(name, float) and name != name) or type(name).__name__ in ("NAType", "NaTType")


def assign_sites(y: ArrayLike, n_nodes: int, scheme: str = "even", *, seed: int = 0, **options: Any) -> Ints:
    """Assign a site to every row, to be passed to `fit` as ``sites``.

    Parameters
    ----------
    y : labels of all rows.
    n_nodes : number of sites.
    scheme : default "even".

        - "even": sizes differ by one row at most;
        - "sizes": sizes in proportion to the option ``sizes``, one positive number per site;
        - "label-skew": the rows of each class are spread by a Dirichlet draw. The smaller the option ``alpha``
          (default 0.1), the more the classes of the sites differ;
        - "sorted": rows are sorted by label and cut into even parts, the strongest skew.
    seed : seed of the draws. Default: 0.

    Returns
    -------
    array of int64
        The site of every row, from 0 to ``n_nodes`` - 1. Every site has a row.

    Raises
    ------
    ValueError, TypeError
        If there are more sites than rows, or an option is wrong. The message names the fix.

    Examples
    --------
    >>> from gadget_svm import assign_sites
    >>> y = [0, 0, 0, 1, 1, 1]
    >>> [int(n) for n in sorted(assign_sites(y, 3))]
    [0, 0, 1, 1, 2, 2]
    >>> assign_sites(y, 2, "sorted").tolist()
    [0, 0, 0, 1, 1, 1]
    """
    labels = np.asarray(y)
    if labels.ndim != 1 or np.ndim(n_nodes) != 0:
        got = f"y of {labels.ndim} dimensions and n_nodes of type {type(n_nodes).__name__}"
        raise TypeError(f"write assign_sites(y, n_nodes), first the labels of all rows; got {got}")
    if ":" in str(scheme):
        python = "scheme='label-skew', alpha=0.1 or scheme='sizes', sizes=[1, 2, 3]"
        raise ValueError(f"{scheme!r} is the form of the command line: in Python write {python}")
    given: Any = n_nodes
    if isinstance(given, bool) or not isinstance(given, numbers.Integral):
        raise TypeError(f"n_nodes must be a whole number of nodes, got {n_nodes!r}")
    if not 1 <= n_nodes <= len(labels):
        raise ValueError(f"{n_nodes} nodes for {len(labels)} rows: every node needs at least one row")
    assign = lookup("partition scheme", scheme, SCHEMES)
    known = list(signature(assign).parameters)[3:]  # after labels, n_nodes and rng
    if set(options) - set(known):
        takes = f"the options {', '.join(known)}" if known else "no options"
        raise TypeError(f"scheme={scheme!r} takes {takes}, got {', '.join(sorted(options))}")
    if scheme == "sizes" and not options:
        raise TypeError("scheme='sizes' needs sizes=[...], one positive number per node")
    return assign(labels, n_nodes, np.random.default_rng(seed), **options)


def _even(labels: Array, n_nodes: int, rng: np.random.Generator) -> Ints:
    return rng.permutation(np.arange(len(labels)) % n_nodes)


def _sizes(labels: Array, n_nodes: int, rng: np.random.Generator, sizes: Sequence[float]) -> Ints:
    """Make sites in proportion to ``sizes``; every site gets a row."""
    part = np.asarray(sizes, dtype=np.float64)
    if len(part) != n_nodes or not ((part > 0) & (part < np.inf)).all():
        raise ValueError(f"sizes must be {n_nodes} positive numbers, one per node; got {list(sizes)}")
    counts = 1 + np.floor(part / part.sum() * (len(labels) - n_nodes)).astype(np.int64)
    counts[np.argsort(-part)[: len(labels) - counts.sum()]] += 1
    return rng.permutation(np.repeat(np.arange(n_nodes), counts))


def _label_skew(labels: Array, n_nodes: int, rng: np.random.Generator, alpha: float = 0.1) -> Ints:
    """Spread every class over the nodes by a Dirichlet draw; a small ``alpha`` makes nodes differ."""
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, got {alpha}: small values skew, large ones even out")
    site = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.round(np.cumsum(rng.dirichlet(np.full(n_nodes, alpha)))[:-1] * len(rows)).astype(np.int64)
        for node, part in enumerate(np.split(rows, cuts)):
            site[part] = node
    for empty in np.flatnonzero(np.bincount(site, minlength=n_nodes) == 0):
        largest = np.bincount(site, minlength=n_nodes).argmax()
        site[rng.choice(np.flatnonzero(site == largest))] = empty
    return site


def _sorted(labels: Array, n_nodes: int, rng: np.random.Generator) -> Ints:
    """Sort rows by label and cut them into even parts."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(np.unique(labels[order], return_inverse=True)[1], kind="stable")]
    site = np.empty(len(labels), dtype=np.int64)
    site[order] = np.arange(len(labels)) * n_nodes // len(labels)
    return site


SCHEMES: dict[str, Callable[..., Ints]] = {"even": _even, "sizes": _sizes, "label-skew": _label_skew, "sorted": _sorted}
