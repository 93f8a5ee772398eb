"""The summary of a training: one plain object for people, JSON and the report, with the reason why it ended."""

import math
from typing import Any

import numpy as np

from gadget_svm.cli.train import TrainRequest
from gadget_svm.cli.train_data import TrainingRows
from gadget_svm.cli.train_model import ALGORITHM_OPTIONS
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.advice import FAR_APART
from gadget_svm.report.formatting import at_most, lost_nodes, mark_lost

Summary = dict[str, Any]
NAMES = {"n_nodes": "nodes", "fit_intercept": "intercept", "n_jobs": "jobs", "random_state": "seed"}
"""Parameters that have the name of their option in the summary."""
LEFT_OUT = {
    "data", "json", "out", "report", "quiet", "settings", "drop", "faults", "data_dir", "require_all_rows",
    "engine_options", *ALGORITHM_OPTIONS,
}  # fmt: skip
"""Options that are not parameters of the run, or that the summary contains in another form."""
WHY_GOSSIP = {
    "diffusion": "On this graph some nodes get too few messages if nodes send to one neighbour per round, so every "
    "node sent to all its neighbours (diffusion); --gossip push-sum sends to one.",
    "running-sum": "Messages got lost, so the nodes gossiped by running sums, which recover from losses; --gossip "
    "push-sum uses the paper's protocol.",
}
"""Why gossip="auto" did not choose the paper's protocol."""


def summarise(request: TrainRequest, rows: TrainingRows, model: GadgetSVC) -> Summary:
    """Evaluate the models and return all facts about a run except its history, as values that JSON can hold."""
    n_nodes, last = len(model.node_coef_), model.history_[-1]
    events = [event for record in model.history_ for event in record.get("events", [])]
    nodes = rows.evaluation.nodes(model, rows.node_sizes(n_nodes))
    nodes, average = mark_lost(nodes, rows.evaluation.average(model), lost_nodes(events), n_nodes)
    summary = {
        "dataset": rows.about,
        "parameters": parameters(request, model),
        "nodes": nodes,
        "nodes_evaluated": len(nodes),
        "average": average,
        **{name: getattr(model, f"{name}_") for name in ("n_iter", "converged", "stopped_by", "gap_bound", "gossip")},
        "why": why_stopped(model),
        "hints": hints(model) + rows.hints(model),
        "events": events,
        "privacy": model.privacy_,
        **{name: last[name] for name in ("messages", "bytes", "disagreement", "seconds")},
    }
    return dict(plain(summary))


def parameters(request: TrainRequest, model: GadgetSVC) -> dict[str, Any]:
    """Return the options with every default filled in, and all parameters of the algorithm."""
    given = {NAMES.get(name, name): value for name, value in vars(request).items() if name not in LEFT_OUT}
    return given | {
        "nodes": len(model.node_coef_),
        "topology": model.network_.name,
        "lam": model.lam_,
        "intercept": model.fit_intercept,
        "stopping": model.stopping_,
        "tol": model.tol_,
        "engine_option": request.engine_options,
        "faults": [fault for _, fault in request.typed_faults],
        "settings": {name: value for name, value in model.algorithm_.get_params().items() if name != "privacy"},
    }


def why_stopped(model: GadgetSVC) -> str:
    """Return how the training ended, and what to do if that was too early."""
    n, rule = model.n_iter_, model.stopping_
    if model.gap_bound_ is not None:
        counted = f", {model.certificate_note_}" if model.certificate_note_ else ""
        bound = f"at most {at_most(model.gap_bound_)} above the optimum{counted}"
        return f"converged after {n:,} iterations, certified: {bound}"
    if model.privacy_ is not None and model.stopped_by_ == "converged":
        spent = f"epsilon {model.privacy_['epsilon']:.3g} at delta {model.privacy_['delta']:g}"
        return f"spent the privacy budget in the {n:,} planned iterations: {spent}"
    if model.stopped_by_ == "converged":
        return f"converged after {n:,} iterations: the rule {rule!r} saw {model.movement_:.3g}"
    if model.stopped_by_ == "interrupted":
        return f"interrupted at iteration {n:,}"
    if model.stopped_by_ == "max_seconds":
        return f"not converged: the {model.max_seconds:g} s of --max-seconds were over at iteration {n:,}"
    if rule is None:
        return f"ran all {n:,} iterations, as there is no stopping rule"
    if model.privacy_ is not None:
        planned, spent = model.privacy_["planned_rounds"], model.privacy_["epsilon"]
        return f"stopped at --max-iter {n:,} of {planned:,} planned iterations, with epsilon {spent:.3g} spent"
    seen = f"last saw {model.movement_:.3g} and " if math.isfinite(model.movement_) else ""
    seen += f"got no certificate, as {model.certificate_note_}, and " if model.certificate_note_ else ""
    return (
        f"stopped at --max-iter {n:,}, not converged: the rule {rule!r} {seen}waits for {model.tol_:g}. "
        "The models are kept as they are; a larger --max-iter takes them further"
    )


def _took_another_gossip(model: GadgetSVC, settings: dict[str, Any]) -> bool:
    """Return whether gossip="auto" chose another protocol than the paper's, which is its default."""
    return settings.get("gossip") == "auto" and model.gossip_ in WHY_GOSSIP and model.privacy_ is None


def hints(model: GadgetSVC) -> list[str]:
    """Return advice about how the nodes gossiped, and how far apart they ended."""
    settings = model.algorithm_.get_params(deep=False)
    found = [WHY_GOSSIP[model.gossip_]] if _took_another_gossip(model, settings) else []
    if model.history_[-1]["disagreement"] > FAR_APART:
        protocol = "" if settings.get("robust") else "--gossip diffusion "
        gossip_options = f"{protocol}--rounds 5 --local-steps 1, or " * ("gossip_rounds" in settings)
        found.append(
            "The nodes are still far apart: their shards differ, or the graph is slow to mix. What brings them "
            f"together: {gossip_options}a larger --max-iter."
        )
    return found


def plain(value: Any) -> Any:
    """Return the value in a form that JSON can hold: numpy's numbers become Python's, NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
