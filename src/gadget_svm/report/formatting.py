"""Writes numbers, losses and the table of nodes as text, in the same way for the page and the terminal.

A value that is not a finite number becomes a dash. The table lists a lost node without figures, because no average
includes its last known model.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MAX_EVENTS = 20
"""Losses and returns that are listed one by one."""


def finite(value: Any, factor: float = 1.0) -> float | None:
    """Return the number times the factor; None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value * factor


def percent(share: Any) -> str:
    """Return a share in per cent: 0.97 is 97.00 %."""
    return "-" if finite(share) is None else f"{100 * share:.2f} %"


def at_most(share: float, digits: int = 2) -> str:
    """Return a bound in per cent, never rounded down: 0.00681 is 0.69 %."""
    if share <= 0:
        return "0 %"
    unit = 10.0 ** (math.floor(math.log10(100 * share)) + 1 - digits)
    return f"{math.ceil(100 * share / unit - 1e-9) * unit:.{digits}g} %"


def number(value: Any, digits: int = 5) -> str:
    """Return a number with a few digits."""
    return "-" if finite(value) is None else f"{value:.{digits}g}"


def count(value: Any) -> str:
    """Return a whole number with separated thousands."""
    return "-" if finite(value) is None else f"{value:,.0f}"


def size(nbytes: Any) -> str:
    """Return bytes in the unit that suits them."""
    if finite(nbytes) is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB"


def describe_losses(history: Iterable[Mapping[str, Any]]) -> str:
    """Return lost and restarted actors and failed checkpoints of a run in one line; empty if there are none."""
    lines: list[str] = []
    lost: dict[int, int] = {}  # actors that are not back, and their places in ``lines``
    for event in (event for record in history for event in record.get("events", [])):
        kind, actor, (first, last) = event["event"], event["actor"], event["nodes"]
        at = f"at iteration {event['iteration']:,}"
        name = f"actor {actor} with " + (f"node {first}" if first == last else f"nodes {first} to {last}")
        if kind == "lost":
            lost[actor] = len(lines)
            lines.append(f"{name} was lost {at} ({event['why']})")
        elif kind == "restarted" and actor in lost:
            lines[lost.pop(actor)] += f", back {at}"
        elif kind == "restarted":  # lost before the run was resumed
            lines.append(f"{name} came back {at}")
        elif kind == "checkpoint failed":
            lines.append(f"a checkpoint could not be written {at} ({event['why']})")
    for place in lost.values():
        lines[place] += ", not back"
    more = f"; and {len(lines) - MAX_EVENTS:,} more" if len(lines) > MAX_EVENTS else ""
    return f"On the way: {'; '.join(lines[:MAX_EVENTS])}{more}." if lines else ""


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
    """Return the records, with "lost" set for lost nodes, and the average with the number of rows of the live nodes.

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
    """Return a node's name and record for a table. The name of a lost node says so, and its record has no figures."""
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
