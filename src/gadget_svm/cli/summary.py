"""What a training came to, as one plain object for people, JSON and the report; and the sentence why it ended."""

import math
from dataclasses import fields
from typing import Any

import numpy as np

from gadget_svm.cli.errors import as_stdin
from gadget_svm.cli.train_request import SETTINGS, Order
from gadget_svm.data import Dataset
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.advice import FAR_APART
from gadget_svm.report.formatting import at_most
from gadget_svm.report.lost_nodes import lost_nodes, mark_lost
from gadget_svm.simulation.stopping import stopping_rule

Summary = dict[str, Any]
NOT_PARAMETERS = (
    "data", "shards", "json", "out", "report", "quiet", "settings", "drop", "fault", "data_dir", "require_all_rows",
)  # fmt: skip


def summarise(
    order: Order, about: dict[str, Any], model: GadgetSVC, nodes: list[dict[str, Any]], average: dict[str, Any]
) -> Summary:
    """Everything about a run but its history; only what JSON can hold. ``about`` describes the data."""
    last = model.history_[-1]
    events = [event for record in model.history_ for event in record.get("events", [])]
    nodes, average = mark_lost(nodes, average, lost_nodes(events), len(model.node_coef_))
    summary = {
        "dataset": about,
        "parameters": parameters(order, model),
        "nodes": nodes,
        "nodes_judged": len(nodes),
        "average": average,
        "n_iter": model.n_iter_,
        "converged": model.converged_,
        "stopped_by": model.stopped_by_,
        "why": why_stopped(model),
        "gap_bound": model.gap_bound_,
        "gossip": model.gossip_,
        "hints": hints(model),
        "events": events,
        "messages": last["messages"],
        "bytes": last["bytes"],
        "disagreement": last["disagreement"],
        "seconds": last["seconds"],
    }
    return dict(plain(summary))


def describe_data(data: Dataset) -> dict[str, Any]:
    """Name and sizes."""
    return {
        "name": data.name,
        "note": as_stdin(data.note),
        "rows": data.X.shape[0],
        "features": data.X.shape[1],
        "classes": np.unique(data.y).tolist(),
        "test_rows": None if data.X_test is None else data.X_test.shape[0],
    }


def parameters(order: Order, model: GadgetSVC) -> dict[str, Any]:
    """The options with every default filled in, and all settings of the algorithm."""
    given = {f.name: getattr(order, f.name) for f in fields(order) if f.name not in NOT_PARAMETERS}
    filled = {
        "nodes": len(model.node_coef_),
        "topology": model.network_.name,
        "lam": model.lam_,
        "intercept": model.fit_intercept,
        "stopping": model.stopping_,
        "tol": None if model.stopping_ is None else stopping_rule(model.stopping_, model.tol).tol,  # type: ignore[union-attr]
        "faults": order.fault_texts,
    }
    settings = model.algorithm_.get_params(deep=False)
    return {key: value for key, value in given.items() if key not in SETTINGS} | filled | {"settings": settings}


def why_stopped(model: GadgetSVC) -> str:
    """How the training ended, and what to do if that was too early."""
    n, rule = model.n_iter_, model.stopping_
    if model.gap_bound_ is not None:
        counted = f", {model.remark_}" if model.remark_ else ""
        bound = f"at most {at_most(model.gap_bound_)} above the optimum{counted}"
        return f"converged after {n:,} iterations, certified: {bound}"
    if model.stopped_by_ == "converged":
        return f"converged after {n:,} iterations: the rule {rule!r} saw {model.movement_:.3g}"
    if model.stopped_by_ == "interrupted":
        return f"interrupted at iteration {n:,}"
    if model.stopped_by_ == "max_seconds":
        return f"not converged: the {model.max_seconds:g} s of --max-seconds were over at iteration {n:,}"
    if rule is None:
        return f"ran all {n:,} iterations, as no stopping rule was asked for"
    seen = f"last saw {model.movement_:.3g} and " if math.isfinite(model.movement_) else ""
    seen += f"got no certificate, as {model.remark_}, and " if model.remark_ else ""
    return (
        f"stopped at --max-iter {n:,}, not converged: the rule {rule!r} {seen}waits for "
        f"{stopping_rule(rule, model.tol).tol:g}. "  # type: ignore[union-attr]
        "The models are kept as they are; a larger --max-iter takes them further"
    )


def hints(model: GadgetSVC) -> list[str]:
    """What a user may want to know of how the nodes gossiped, and how far apart they ended."""
    said = []
    if model.gossip_ == "diffusion" and getattr(model.algorithm_, "gossip", None) == "auto":
        said.append(
            "On this graph one neighbour a round starves some nodes, so every node sent to all its neighbours "
            "(diffusion); --gossip push-sum insists on one."
        )
    if model.history_[-1]["disagreement"] > FAR_APART:
        settings = model.algorithm_.get_params(deep=False)
        knobs = (
            "--gossip diffusion --rounds 5 --local-steps 1, or "
            if {"gossip_rounds", "local_steps"} <= {*settings}
            else ""
        )
        said.append(
            "The nodes are still far apart: their shards differ, or the graph is slow to mix. What brings them "
            f"together: {knobs}a larger --max-iter."
        )
    return said


def plain(value: Any) -> Any:
    """The value with numpy's scalars as Python's, and None where a number is not finite: JSON knows neither."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
