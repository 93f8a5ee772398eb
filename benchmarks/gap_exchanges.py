"""Exchanges to a gap: what every node must send until the worst of ten is within 10 %, 1 % and 0.1 % of the optimum."""

from typing import Any

from benchmarks.common import NOT_REACHED, Table, publish_tables, ratio, say, style
from benchmarks.gaps import NODES, Curve, Task, absent, percent, tasks, watched
from gadget_svm.algorithms import ALGORITHMS, Gadget, Pdmm

TARGETS = (1e-1, 1e-2, 1e-3)
PEER = "mom-dsvm"
METHODS: dict[str, tuple[Any, int]] = {
    "gadget (persistent mass)": (Gadget, 30_000),
    "asgd": (ALGORITHMS.get("asgd"), 2_000),
    "pdmm, one neighbour": (Pdmm, 2_000),
    "pdmm, all neighbours": (lambda: Pdmm(neighbours="all"), 2_000),
    PEER: (ALGORITHMS["mom-dsvm"], 2_000),
}
"""What makes the algorithm, and after how many ticks it is given up."""
COLUMNS = [
    "data", "method", "gap", "ticks", "messages a node", "KB a node", f"ratio of messages to {PEER}",
    f"ratio of bytes to {PEER}",
]  # fmt: skip


def main(quick: bool = False) -> None:
    """Every data set on this machine, every method, each until 0.1 % or its cap."""
    table, missing, curves = Table(COLUMNS), list[str](), {}
    for task in tasks(quick, missing):
        curves[task.name] = _curves(task, quick)
        _tabulate(task, table, curves[task.name])
    gone = [name for name, (make, _) in METHODS.items() if make is None]
    notes = [
        f"The worst of {NODES} nodes on a random 4-regular graph, the paper's lambda, no bias, default settings. A "
        "tick is an iteration with its exchanges; bytes are those of float64 vectors with their headers. Runs are "
        f"given up after {', '.join(f'{ticks:,} ticks ({name})' for name, (_, ticks) in METHODS.items())}, or "
        f"{SECONDS[quick]} seconds.",
        *([f"Not in this version: {', '.join(gone)}."] if gone else []),
        *absent(missing),
    ]
    publish_tables("gap_exchanges", "Exchanges to a gap", notes, [table], lambda figure: _draw(figure, curves), quick,
                   size=(4.0 * max(2, len(curves)), 4.2))  # fmt: skip


SECONDS = {False: 60, True: 1}


def _curves(task: Task, quick: bool) -> dict[str, Curve]:
    curves = {}
    for name, (make, most) in METHODS.items():
        if make is not None:
            say(f"gap_exchanges: {task.name}, {name}")
            curves[name] = watched(task, make(), min(TARGETS), most, SECONDS[quick])
    return curves


def _tabulate(task: Task, table: Table, curves: dict[str, Curve]) -> None:
    for target in TARGETS:
        reached = {name: curve.first(target) for name, curve in curves.items()}
        at = reached[PEER]
        peer = (None, None) if at is None else (curves[PEER].messages[at], curves[PEER].nbytes[at])
        for name, curve in curves.items():
            place = reached[name]
            if place is None:
                words = f"{NOT_REACHED} in {curve.ticks[-1]:,} (best {percent(min(curve.gaps))})"
                table.add(task.name, name, percent(target), words, None, None, None, None)
                continue
            sent, nbytes = curve.messages[place], curve.nbytes[place]
            table.add(task.name, name, percent(target), curve.ticks[place], sent, nbytes / 1e3, ratio(sent, peer[0]),
                      ratio(nbytes, peer[1]))  # fmt: skip


def _draw(figure: Any, curves: dict[str, dict[str, Curve]]) -> None:
    axes = figure.subplots(1, max(1, len(curves)), squeeze=False)[0]
    for axis, (name, methods) in zip(axes, curves.items(), strict=False):
        for method, curve in methods.items():
            axis.plot(curve.messages, [max(gap, 1e-5) for gap in curve.gaps], label=method)
        for target in TARGETS:
            axis.axhline(target, color="grey", linewidth=0.5)
        style(axis, xscale="log", yscale="log", title=name, xlabel="messages a node", ylabel="gap of the worst node")
        axis.set_ylim(top=100)


if __name__ == "__main__":
    main()
