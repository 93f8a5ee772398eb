"""Labels of nodes: matches sites, shards and a graph's labels, and finds a node by its label. Owns no rows."""

import numbers
import re
from collections.abc import Hashable, Sequence
from typing import Any

from gadget_svm.core.lookup import in_order

MAX_LISTED_LABELS = 10
"""Labels that an error lists at most, on each side."""


def node_names(count: int, labels: list[Hashable] | None) -> list[Hashable]:
    """Return the labels of nodes without sites: the labels in the graph, else 0 to count - 1."""
    return labels if labels is not None and len(labels) == count else list(range(count))


def check_labels(sites: Sequence[Hashable], labels: Sequence[Hashable]) -> None:
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


def name_shards(
    shards: Sequence[Any], sites: Sequence[Hashable] | None, labels: Sequence[Hashable] | None
) -> tuple[list[Any], list[Hashable]]:
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


def node_number(names: Sequence[Hashable], site: Any) -> int:
    """Return the position of the node with this label. An integer is a position if no label is a number."""
    if site in names:
        return names.index(site)
    position = isinstance(site, numbers.Integral) and not isinstance(site, bool)
    by_position = len(names) == 1 or not any(isinstance(name, numbers.Number) for name in names)
    if position and by_position and 0 <= site < len(names):
        return int(site)
    known = f"0 to {len(names) - 1}" if list(names) == list(range(len(names))) else _listed(names)
    raise IndexError(f"there is no node {site!r}: the nodes are {known}")


def in_names(text: str, names: Sequence[Hashable]) -> str:
    """Replace the numbers of nodes in a message by their labels."""
    return re.sub(r"\bnode (\d+)", lambda found: f"node {names[int(found[1])]!r}", text)


def _listed(labels: Sequence[Hashable]) -> str:
    more = f" and {len(labels) - MAX_LISTED_LABELS} more" if len(labels) > MAX_LISTED_LABELS else ""
    return ", ".join(repr(label) for label in labels[:MAX_LISTED_LABELS]) + more
