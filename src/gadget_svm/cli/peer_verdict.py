"""What `gadget peer demo` came to: each model file measured, beside the optimum of one who has all rows.

Peers only ever see their own rows: the pooled objective and its optimum are computed here, when they have left.
"""

import math
import time
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from gadget_svm.cli.evaluation import Evaluator
from gadget_svm.cli.peer_fleet import PeerProcess, Story
from gadget_svm.cli.summary import describe_data, plain
from gadget_svm.cli.tables import say
from gadget_svm.data import Dataset
from gadget_svm.estimator import load_model
from gadget_svm.report.formatting import at_most, count, number, percent, size

TIGHT, PATIENCE = 1e-6, 60.0
"""How closely the pooled optimum is enclosed, and the seconds after which a wider enclosure will do."""
REMARKS = {
    "intercept": "none, so that the pooled optimum is that of the very problem the peers solve",
    "gap": "objective / lower bound of the pooled optimum - 1: never less than the true one",
    "messages": "letters with weights or signs of life that were answered, as last asked; so are bytes",
}


def measure(story: Story, parameters: dict[str, Any], data: Dataset, judge: Evaluator) -> dict[str, Any]:
    """Everything about a demo, only what JSON can hold."""
    pooled = pooled_optimum(data, judge)
    entries = [_entry(peer, story, judge, pooled["bound"]) for peer in story.peers]
    gaps = [entry["gap"] for entry in entries if entry["gap"] is not None]
    summary = {
        "dataset": describe_data(data),
        "parameters": parameters,
        "remarks": REMARKS,
        "seconds": story.seconds,
        "interrupted": story.interrupted,
        "events": story.events,
        "pooled": pooled,
        "peers": entries,
        "worst_gap": max(gaps) if len(gaps) == len(entries) else None,
        "in_good_order": all(entry["in_good_order"] for entry in entries),
    }
    return dict(plain(summary))


def _entry(peer: PeerProcess, story: Story, judge: Evaluator, bound: float) -> dict[str, Any]:
    scores: dict[str, Any] = dict.fromkeys(("train_objective", "train_accuracy", "test_accuracy", "gap", "ticks"))
    trouble = None
    try:
        model = load_model(peer.config.peer.model)
        scores |= judge.model(model.coef_, model.intercept_, intercept=False) | {"ticks": model.n_iter_}
        scores["gap"] = scores["train_objective"] / bound - 1 if bound > 0 else None
    except (ValueError, FileNotFoundError) as error:
        trouble = str(error)
    end = story.ends.get(peer.name, "never started")
    return {
        "name": peer.name,
        "rows": peer.last.get("rows"),
        **scores,
        "messages": peer.total("messages_sent"),
        "bytes": peer.total("bytes_sent"),
        "incarnation": peer.last.get("incarnation"),
        "end": end,
        "exit_code": peer.exit_code,
        "trouble": trouble,
        "in_good_order": end == "left" and peer.exit_code == 0 and trouble is None,
    }


def pooled_optimum(data: Dataset, judge: Evaluator) -> dict[str, Any]:
    """The optimum enclosed; of several classes the sum of each against the rest, as is the objective."""
    from gadget_svm.reproduction.baselines.optimum import Optimum, certified_optimum

    label, outputs = judge.train.label, judge.train.n_outputs
    until = time.monotonic() + PATIENCE
    optima: list[Optimum] = []
    for k in [1] if outputs == 1 else range(outputs):
        share = max(0.1, (until - time.monotonic()) / (outputs - len(optima)))
        y = np.where(label == k, 1, -1)
        optima.append(certified_optimum(data.X, y, judge.train.lam, TIGHT, max_seconds=share))
    scores = judge.model(np.array([optimum.w for optimum in optima]), np.zeros(outputs), intercept=False)
    bound = math.fsum(optimum.bound for optimum in optima)
    return {
        "objective": scores["train_objective"],
        "bound": bound,
        "certified_gap": scores["train_objective"] / bound - 1 if bound > 0 else None,
        "train_accuracy": scores["train_accuracy"],
        "test_accuracy": scores["test_accuracy"],
    }


def show(console: Console, summary: dict[str, Any]) -> None:
    """The final table and one sentence."""
    pooled, rows = summary["pooled"], summary["dataset"]["rows"]
    title = f"{summary['dataset']['name']}, {summary['seconds']:.0f} s"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("peer", no_wrap=True)
    for column in ("rows", "test acc.", "objective", "gap", "ticks", "letters", "sent"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in summary["peers"]:
        table.add_row(
            one["name"], count(one["rows"]), percent(one["test_accuracy"]), number(one["train_objective"]),
            _at_most(one["gap"]), count(one["ticks"]), count(one["messages"]), size(one["bytes"]),
        )  # fmt: skip
    table.add_section()
    central = percent(pooled["test_accuracy"]), number(pooled["objective"]), _at_most(pooled["certified_gap"])
    table.add_row("pooled", count(rows), *central)
    console.print(table)
    say(console, closing(summary))


def closing(summary: dict[str, Any]) -> str:
    """What it came to, in a sentence."""
    bad = [_how(one) for one in summary["peers"] if not one["in_good_order"]]
    said = "Interrupted. " if summary["interrupted"] else ""
    said += f"Not in good order: {', '.join(bad)}. " if bad else ""
    known = [one for one in summary["peers"] if one["gap"] is not None]
    if not known:
        return said + "No peer has left a model that can be measured."
    worst = max(known, key=lambda one: float(one["gap"]))
    return said + (
        f"The worst of {len(known)} models, that of {worst['name']}, is at most {_at_most(worst['gap'])} above the "
        f"optimum of all {summary['dataset']['rows']:,} rows in one place."
    )


def _how(one: dict[str, Any]) -> str:
    code = "" if one["exit_code"] is None else f", exit code {one['exit_code']}"
    return f"{one['name']} ({one['end']}{code}{', no model' if one['trouble'] else ''})"


def _at_most(gap: float | None) -> str:
    """Never rounded down."""
    return "-" if gap is None else at_most(gap) if gap < 1 else f"{math.ceil(100 * gap):,} %"
