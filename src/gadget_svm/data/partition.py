"""Who gets which rows: dealt out evenly, by the user's sites, by unequal sizes, or skewed by label. Always seeded.

Even dealing goes by a hash of what a row says, not by where it stands: neither the order of a file nor whether a
row is repeated or weighted changes what a node learns.
"""

import numbers
from collections.abc import Callable, Hashable, Sequence
from inspect import signature
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from gadget_svm.core.lookup import in_order, lookup
from gadget_svm.core.rows import Shares
from gadget_svm.core.types import Floats, Ints
from gadget_svm.kernels.rows import hash_rows

ONCE = np.empty(0)


def partition_evenly(
    X: sp.csr_matrix, label: NDArray[np.int32], n_nodes: int, seed: int, times: Floats | None = None
) -> Shares:
    """Rows in the order of their hash, one to each node in turn.

    ``times`` are the rows' weights. Whole numbers count as repetitions, and the copies are dealt like rows;
    others stay with their row. A row of weight zero is left out.
    """
    order = np.argsort(hash_rows(X.indptr, X.indices, X.data.view(np.uint64), label, seed), kind="stable")
    if times is None:
        return Shares(*_in_turn(order, np.arange(len(order)) % n_nodes, n_nodes), ONCE)
    order = order[times[order] > 0]
    count = times[order]
    if not are_counts(count):
        rows, start = _in_turn(order, np.arange(len(order)) % n_nodes, n_nodes)
        return Shares(rows, start, times[rows])
    return _deal_copies(order, count.astype(np.int64), n_nodes)


def are_counts(weights: Floats) -> bool:
    """Whether weights are whole numbers, so that each says how often its row stands there."""
    return bool(weights.sum() < 2**53) and np.array_equal(weights, np.round(weights))


def _deal_copies(order: Ints, count: Ints, n_nodes: int) -> Shares:
    """Row order[q] stands count[q] times in a long line that is dealt out in turn."""
    holders = np.minimum(count, n_nodes)
    at = np.repeat(np.cumsum(count) - count, holders)
    nth = np.arange(holders.sum()) - np.repeat(np.cumsum(holders) - holders, holders)
    whole, rest = np.repeat(count // n_nodes, holders), np.repeat(count % n_nodes, holders)
    node, copies = (at + nth) % n_nodes, whole + (nth < rest)
    by_node = np.argsort(node, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=n_nodes))]).astype(np.int64)
    times = copies[by_node].astype(np.float64)
    return Shares(np.repeat(order, holders)[by_node], start, ONCE if (times == 1).all() else times)


def _in_turn(order: Ints, node: Ints, n_nodes: int) -> tuple[Ints, Ints]:
    counts = np.bincount(node, minlength=n_nodes)
    return order[np.argsort(node, kind="stable")], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def partition_by_site(
    sites: ArrayLike, times: Floats | None = None, known: list[Hashable] | None = None
) -> tuple[Shares, list[Hashable]]:
    """Every row to the node of its site; nodes are numbered as ``known``, or by the sorted labels. Returns both."""
    names, node = _codes(sites)
    if known is not None:
        number = {name: i for i, name in enumerate(known)}
        strangers = [name for name in names if name not in number]
        if strangers:
            raise ValueError(f"unknown site {strangers[0]!r}: the nodes of this network are {known}")
        node = np.array([number[name] for name in names], dtype=np.int64)[node]
        names = known
    rows = np.arange(len(node))
    if times is not None:
        rows = rows[times > 0]
    order, start = _in_turn(rows, node[rows], len(names))
    return Shares(order, start, ONCE if times is None else times[order]), names


def _codes(sites: ArrayLike) -> tuple[list[Hashable], Ints]:
    """Distinct labels (sorted where they can be, else in order of appearance) and every row's place among them."""
    labels: list[Any] = sites.tolist() if isinstance(sites, np.ndarray) else list(sites)  # type: ignore[arg-type]
    try:
        distinct = in_order(labels)
    except TypeError as error:
        raise TypeError(f"sites needs one label per row, a text or a number ({error})") from None
    if any(_is_missing(name) for name in distinct):
        raise ValueError("sites has missing values (None or NaN): give every row a site, or leave these rows out")
    place = {name: i for i, name in enumerate(distinct)}
    return distinct, np.array([place[name] for name in labels], dtype=np.int64)


def _is_missing(name: Any) -> bool:
    """Whether this is None, NaN, or the missing value of pandas."""
    return name is None or (isinstance(name, float) and name != name) or type(name).__name__ in ("NAType", "NaTType")


def assign_sites(y: ArrayLike, n_nodes: int, scheme: str = "even", *, seed: int = 0, **options: Any) -> Ints:
    """A site for every row, to be passed as ``sites``: "even", "sizes" (sizes=[...]) or "label-skew" (alpha=0.1)."""
    labels = np.asarray(y)
    if labels.ndim != 1 or np.ndim(n_nodes) != 0:
        raise TypeError(
            "assign_sites takes the labels of all rows first and the number of nodes second, assign_sites(y, n_nodes); "
            f"got y of {labels.ndim} dimensions and n_nodes of type {type(n_nodes).__name__}"
        )
    if ":" in str(scheme):
        raise ValueError(
            f"{scheme!r} is how the command line writes it: here write scheme='label-skew', alpha=0.1 or "
            "scheme='sizes', sizes=[1, 2, 3]"
        )
    given: Any = n_nodes
    if isinstance(given, bool) or not isinstance(given, numbers.Integral):
        raise TypeError(f"n_nodes must be a whole number of nodes, got {n_nodes!r}")
    if not 1 <= n_nodes <= len(labels):
        raise ValueError(f"{n_nodes} nodes for {len(labels)} rows: every node needs at least one row")
    deal = lookup("partition scheme", scheme, SCHEMES)
    known = list(signature(deal).parameters)[3:]  # after labels, n_nodes and rng
    if set(options) - set(known):
        takes = f"the options {', '.join(known)}" if known else "no options"
        raise TypeError(f"scheme={scheme!r} takes {takes}, got {', '.join(sorted(options))}")
    if scheme == "sizes" and not options:
        raise TypeError("scheme='sizes' needs sizes=[...], one positive number per node")
    return deal(labels, n_nodes, np.random.default_rng(seed), **options)


def _even(labels: NDArray[Any], n_nodes: int, rng: np.random.Generator) -> Ints:
    return rng.permutation(np.arange(len(labels)) % n_nodes)


def _sizes(labels: NDArray[Any], n_nodes: int, rng: np.random.Generator, sizes: Sequence[float]) -> Ints:
    """Shards in proportion to ``sizes``, none empty."""
    part = np.asarray(sizes, dtype=np.float64)
    if len(part) != n_nodes or not ((part > 0) & (part < np.inf)).all():
        raise ValueError(f"sizes must be {n_nodes} positive numbers, one per node; got {list(sizes)}")
    counts = 1 + np.floor(part / part.sum() * (len(labels) - n_nodes)).astype(np.int64)
    counts[np.argsort(-part)[: len(labels) - counts.sum()]] += 1
    return rng.permutation(np.repeat(np.arange(n_nodes), counts))


def _label_skew(labels: NDArray[Any], n_nodes: int, rng: np.random.Generator, alpha: float = 0.1) -> Ints:
    """Every class is spread over the nodes by a Dirichlet draw: the smaller alpha, the more one-sided the shards."""
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, got {alpha}: small values skew, large ones even out")
    site = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.round(np.cumsum(rng.dirichlet(np.full(n_nodes, alpha)))[:-1] * len(rows)).astype(np.int64)
        for node, part in enumerate(np.split(rows, cuts)):
            site[part] = node
    for bare in np.flatnonzero(np.bincount(site, minlength=n_nodes) == 0):  # nobody is left without a row
        richest = np.bincount(site, minlength=n_nodes).argmax()
        site[rng.choice(np.flatnonzero(site == richest))] = bare
    return site


def _sorted(labels: NDArray[Any], n_nodes: int, rng: np.random.Generator) -> Ints:
    """Rows sorted by label before they are cut into even shards: the strongest skew there is."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(np.unique(labels[order], return_inverse=True)[1], kind="stable")]
    site = np.empty(len(labels), dtype=np.int64)
    site[order] = np.arange(len(labels)) * n_nodes // len(labels)
    return site


SCHEMES: dict[str, Callable[..., Ints]] = {"even": _even, "sizes": _sizes, "label-skew": _label_skew, "sorted": _sorted}
