"""Names of nodes: matches sites, shards and the labels of a graph, and finds a node by its name. Owns no rows."""

import numbers
import re
from collections.abc import Hashable, Sequence
from typing import Any

from gadget_svm.core.lookup import in_order

SHOWN = 10
"""Labels that an error lists at most, on each side."""


def node_names(count: int, labels: list[Hashable] | None) -> list[Hashable]:
    """The names of nodes that no site names: the labels of the graph, else 0 to count - 1."""
    return labels if labels is not None and len(labels) == count else list(range(count))


def check_labels(sites: Sequence[Hashable], labels: Sequence[Hashable]) -> None:
    """Refuse sites that are not exactly the nodes of the graph, with the labels missing on each side."""
    ours, theirs = set(sites), set(labels)
    unknown, bare = [site for site in sites if site not in theirs], [label for label in labels if label not in ours]
    if not (unknown or bare):
        return
    said = "the sites and the nodes of the graph have different labels"
    said += f". Sites without a node: {_listed(unknown)}" * bool(unknown)
    said += f". Nodes without a site: {_listed(bare)}" * bool(bare)
    if unknown and {str(site) for site in unknown} == {str(each) for each in bare}:
        one, other = type(unknown[0]).__name__, type(bare[0]).__name__
        said += f". Sites are of type {one}, nodes of type {other}: relabel with networkx.relabel_nodes(graph, {one})"
    raise ValueError(said)


def name_shards(
    shards: Sequence[Any], sites: Sequence[Hashable] | None, labels: Sequence[Hashable] | None
) -> tuple[list[Any], list[Hashable]]:
    """The shards in the order of the nodes, and the nodes' names."""
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
    """The number of the node with this name. A whole number is a position where no site is called by a number."""
    if site in names:
        return names.index(site)
    position = isinstance(site, numbers.Integral) and not isinstance(site, bool)
    by_position = len(names) == 1 or not any(isinstance(name, numbers.Number) for name in names)
    if position and by_position and 0 <= site < len(names):
        return int(site)
    known = f"0 to {len(names) - 1}" if list(names) == list(range(len(names))) else _listed(names)
    raise IndexError(f"there is no node {site!r}: the nodes are {known}")


def in_names(text: str, names: Sequence[Hashable]) -> str:
    """A message about nodes with their names in the place of their numbers."""
    return re.sub(r"\bnode (\d+)", lambda found: f"node {names[int(found[1])]!r}", text)


def _listed(labels: Sequence[Hashable]) -> str:
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return ", ".join(repr(label) for label in labels[:SHOWN]) + more
