"""Who is lost at the end of a run, and what is said of them: a name, no figures. Of a lost node the model last seen is
all that is left, and it is part of no average."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Node = dict[str, Any]
FIGURES = ("train_objective", "train_accuracy", "test_accuracy")


def lost_nodes(events: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """The nodes that were lost and are not back, and at which iteration they were last lost."""
    lost: dict[int, int] = {}
    for event in events:
        if event["event"] not in ("lost", "restarted"):
            continue
        first, last = event["nodes"]
        for node in range(first, last + 1):
            lost.pop(node, None)
            if event["event"] == "lost":
                lost[node] = event["iteration"]
    return lost


def mark_lost(nodes: Sequence[Node], average: Node, lost: Mapping[int, int], n_nodes: int) -> tuple[list[Node], Node]:
    """Records of nodes that say who is lost, and that of the average with the rows of the others alone.

    Where not all nodes were judged, these are not known.
    """
    said = [node | ({"lost": lost[node["node"]]} if node["node"] in lost else {}) for node in nodes]
    if not lost:
        return said, average
    rows = sum(node["rows"] for node in live_nodes(said)) if len(nodes) == n_nodes else None
    return said, average | {"rows": rows}


def live_nodes(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that are not lost."""
    return [node for node in nodes if node.get("lost") is None]


def absence(node: Node) -> str:
    """When it was lost; nothing if it was not."""
    return "" if node.get("lost") is None else f"lost at iteration {node['lost']:,}"


def table_entry(node: Node) -> tuple[str, Node]:
    """A node's name and record for a table; a lost one's name says so, and there are no figures."""
    if node.get("lost") is None:
        return str(node["node"]), node
    return f"{node['node']}, {absence(node)}", node | dict.fromkeys(FIGURES)
