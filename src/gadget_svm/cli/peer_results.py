"""The results of `gadget peer demo`: each model file measured, beside the optimum of all rows in one place.

Peers see only their own rows: the pooled objective and its optimum are computed here, when they have left.
"""

import math
import time
from typing import Any

import numpy as np
from rich.console import Console

from gadget_svm.cli.evaluation import Evaluation
from gadget_svm.cli.output import make_table, say
from gadget_svm.cli.peer_demo import DemoRun
from gadget_svm.cli.peer_processes import PeerProcess
from gadget_svm.cli.summary import plain
from gadget_svm.cli.train_data import describe_data
from gadget_svm.data import Dataset
from gadget_svm.estimator import load_model
from gadget_svm.report.formatting import at_most, count, number, percent, size

OPTIMUM_TOLERANCE, OPTIMUM_LIMIT_S = 1e-6, 60.0
"""The relative width of the enclosure of the pooled optimum, and the time after which a wider one is accepted."""
REMARKS = {
    "intercept": "none, so that the peers and the pooled optimum solve the same problem",
    "gap": "objective / lower bound of the pooled optimum - 1: never less than the true one",
    "messages": "messages that were acknowledged, as of the last status; so are bytes",
}


def measure(run: DemoRun, parameters: dict[str, Any], data: Dataset, evaluation: Evaluation) -> dict[str, Any]:
    """Return all facts about a demo, as values that JSON can hold."""
    pooled = pooled_optimum(data, evaluation)
    entries = [_entry(peer, run.ends.get(peer.name), evaluation, pooled["bound"]) for peer in run.fleet.peers]
    gaps = [entry["gap"] for entry in entries]
    summary = {
        "dataset": describe_data(data),
        "parameters": parameters,
        "remarks": REMARKS,
        "seconds": run.seconds,
        "interrupted": run.stop.requested,
        "events": run.events,
        "pooled": pooled,
        "peers": entries,
        "worst_gap": None if None in gaps else max(gaps),
        "clean": all(entry["clean"] for entry in entries),
    }
    return dict(plain(summary))


def _entry(peer: PeerProcess, end: str | None, evaluation: Evaluation, bound: float) -> dict[str, Any]:
    scores: dict[str, Any] = dict.fromkeys(("train_objective", "train_accuracy", "test_accuracy", "gap", "ticks"))
    error = None
    try:
        model = load_model(peer.config.peer.model)
        scores |= evaluation.model(model.coef_, model.intercept_, intercept=False) | {"ticks": model.n_iter_}
        scores["gap"] = _gap(scores["train_objective"], bound)
    except (ValueError, FileNotFoundError) as failure:
        error = str(failure)
    return {
        "name": peer.name,
        "rows": peer.last_status.get("rows"),
        **scores,
        "messages": peer.total("messages_sent"),
        "bytes": peer.total("bytes_sent"),
        "incarnation": peer.last_status.get("incarnation"),
        "end": end,
        "exit_code": peer.exit_code,
        "error": error,
        "clean": end == "left" and peer.exit_code == 0 and error is None,
    }


def _gap(objective: float, bound: float) -> float | None:
    return objective / bound - 1 if bound > 0 else None


def pooled_optimum(data: Dataset, evaluation: Evaluation) -> dict[str, Any]:
    """Enclose the optimum; with several classes the sum over each class against the rest, as in the objective."""
    from gadget_svm.reproduction.baselines.optimum import Optimum, certified_optimum

    train = evaluation.train
    assert train is not None
    end, outputs = time.monotonic() + OPTIMUM_LIMIT_S, train.n_outputs
    optima: list[Optimum] = []
    for k in [1] if outputs == 1 else range(outputs):
        share_s = max(0.1, (end - time.monotonic()) / (outputs - len(optima)))
        y = np.where(train.label == k, 1, -1)
        optima.append(certified_optimum(data.X, y, train.lam, OPTIMUM_TOLERANCE, max_seconds=share_s))
    scores = evaluation.model(np.array([optimum.w for optimum in optima]), np.zeros(outputs), intercept=False)
    bound, objective = math.fsum(optimum.bound for optimum in optima), scores.pop("train_objective")
    return {"objective": objective, "bound": bound, "certified_gap": _gap(objective, bound), **scores}


def show(console: Console, summary: dict[str, Any]) -> None:
    """Print the final table and a sentence."""
    pooled, rows = summary["pooled"], summary["dataset"]["rows"]
    columns = ("peer", "rows", "test acc.", "objective", "gap", "ticks", "messages", "sent")
    title = f"{summary['dataset']['name']}, {summary['seconds']:.0f} s"
    table = make_table(columns, title=title, plain=True, collapse_padding=True)
    for each in summary["peers"]:
        table.add_row(
            each["name"], count(each["rows"]), percent(each["test_accuracy"]), number(each["train_objective"]),
            _at_most(each["gap"]), count(each["ticks"]), count(each["messages"]), size(each["bytes"]),
        )  # fmt: skip
    table.add_section()
    central = percent(pooled["test_accuracy"]), number(pooled["objective"]), _at_most(pooled["certified_gap"])
    table.add_row("pooled", count(rows), *central)
    console.print(table)
    say(console, closing(summary))


def closing(summary: dict[str, Any]) -> str:
    """Return the result as a sentence."""
    failed = ", ".join(_how(each) for each in summary["peers"] if not each["clean"])
    text = ("Interrupted. " if summary["interrupted"] else "") + (f"Not ended cleanly: {failed}. " if failed else "")
    known: list[dict[str, Any]] = [each for each in summary["peers"] if each["gap"] is not None]
    if not known:
        return text + "No peer has left a model that can be measured."
    worst = max(known, key=lambda each: float(each["gap"]))
    return text + (
        f"The worst of {len(known)} models, that of {worst['name']}, is at most {_at_most(worst['gap'])} above the "
        f"optimum of all {summary['dataset']['rows']:,} rows in one place."
    )


def _how(peer: dict[str, Any]) -> str:
    code = "" if peer["exit_code"] is None else f", exit code {peer['exit_code']}"
    return f"{peer['name']} ({peer['end']}{code}{', no model' if peer['error'] else ''})"


def _at_most(gap: float | None) -> str:
    """Return a bound on the gap, never rounded down."""
    return "-" if gap is None else at_most(gap) if gap < 1 else f"{math.ceil(100 * gap):,} %"
