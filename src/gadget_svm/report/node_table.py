"""The table of nodes, the same on the page and in the terminal, and the nodes that are lost at the end of a run.

The table names a lost node without figures: no average includes its last known model.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gadget_svm.report.formatting import count, number, percent

Node = dict[str, Any]
NODE_COLUMNS = ("node", "rows", "train accuracy", "test accuracy", "objective")
FIGURES = ("train_objective", "train_accuracy", "test_accuracy")


def lost_nodes(events: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return the nodes that are lost and have not returned, and the iterations at which they were last lost."""
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
    """Return the records with "lost" at lost nodes, and the average with the number of rows of the live nodes.

    That number is None if not all nodes are evaluated.
    """
    marked = [node | ({"lost": lost[node["node"]]} if node["node"] in lost else {}) for node in nodes]
    if not lost:
        return marked, average
    rows = sum(node["rows"] for node in live_nodes(marked)) if len(nodes) == n_nodes else None
    return marked, average | {"rows": rows}


def live_nodes(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that are not lost."""
    return [node for node in nodes if node.get("lost") is None]


def table_entry(node: Node) -> tuple[str, Node]:
    """Return a node's name and record for a table; a lost one's name says so, and it has no figures."""
    if node.get("lost") is None:
        return str(node["node"]), node
    return f"{node['node']}, lost at iteration {node['lost']:,}", node | dict.fromkeys(FIGURES)


def average_entry(summary: Mapping[str, Any]) -> tuple[str, Node]:
    """Return the name and the record of the network average, which has all rows unless nodes are lost."""
    return "average", {"rows": summary["dataset"]["rows"], **summary["average"]}


def table_cells(name: str, node: Node) -> list[str]:
    """Return the cells of a node, or of an average of nodes, in the order of `NODE_COLUMNS`."""
    accuracies = (percent(node.get(key)) for key in ("train_accuracy", "test_accuracy"))
    return [name, count(node.get("rows")), *accuracies, number(node.get("train_objective"))]
