"""Summaries and histories of runs, as `gadget train --json` prints them."""

from gadget_svm.report.formatting import lost_nodes, mark_lost


def records(n=6, **changed):
    return [
        {
            "iteration": 4**i, "seconds": 0.01 * 2**i, "objective": 10.0 / 4**i, "worst_objective": 12.0 / 4**i,
            "error": 0.1, "test_error": 0.11, "disagreement": 1.0 / 2**i, "messages": 40 * 4**i, "bytes": 4000 * 4**i,
            **changed,
        }
        for i in range(n)
    ]  # fmt: skip


def summary(n_nodes, name="toy", **node):
    nodes = [
        {"node": i, "rows": 7, "train_objective": 0.5 + i, "train_accuracy": 0.9, "test_accuracy": 0.8 + i * 1e-4,
         **node}
        for i in range(n_nodes)
    ]  # fmt: skip
    return {
        "dataset": {"name": name, "note": name, "rows": 7 * n_nodes, "features": 3, "classes": [-1, 1], "test_rows": 9},
        "parameters": {"nodes": n_nodes, "lam": 0.1, "label": None, "faults": [name], "more": {"solver": "pegasos"}},
        "nodes": nodes,
        "average": {"train_objective": 0.4, "train_accuracy": 0.9, "test_accuracy": 0.8},
        "n_iter": 1024, "converged": True, "stopped_by": "converged", "why": "converged after 1,024 iterations",
        "messages": 4096, "bytes": 409600, "seconds": 0.32, "disagreement": 0.03,
    }  # fmt: skip


def event(kind, first, last, iteration):
    return {"event": kind, "actor": first, "nodes": [first, last], "iteration": iteration, "why": "no answer"}


def summary_with_losses(n_nodes=6, evaluated=None, **node):
    """A run that lost nodes 2 and 3, whose last models were the worst, and got node 5 back."""
    run = summary(n_nodes, **node)
    run["events"] = [event("lost", 2, 3, 40), event("lost", 5, 5, 50), event("restarted", 5, 5, 60)]
    for i in (2, 3):
        run["nodes"][i] |= {} if node else {"test_accuracy": 0.111, "train_objective": 77.0}
    run["nodes"], run["average"] = mark_lost(
        run["nodes"][:evaluated], run["average"], lost_nodes(run["events"]), n_nodes
    )
    return run
