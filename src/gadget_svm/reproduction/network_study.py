"""The paper's future work: "impact of the underlying network structure" and "resilience to node failures".

Owns which networks and faults are studied; `methods` and `trials` run and evaluate them. GADGET has persistent mass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gadget_svm import spectral
from gadget_svm.algorithms import Gadget
from gadget_svm.faults import FaultContext, make_faults, wrap_all
from gadget_svm.reproduction.methods import run_network
from gadget_svm.reproduction.tables import mean, spread
from gadget_svm.reproduction.trials import Trial

GRAPHS = (
    "line", "ring", "tree", "star", "grid", "torus", "small-world", "scale-free", "erdos-renyi", "random-regular",
    "hypercube", "exponential", "complete",
)  # fmt: skip
LARGE, LARGE_TRIALS = 100, 3
"""Networks of more than LARGE nodes get at most LARGE_TRIALS trials."""


@dataclass(frozen=True)
class Setup:
    """One network under one fault; ``level`` is what the study varies."""

    study: str
    topology: str = "random-regular"
    nodes: int = 10
    gossip: str = "push-sum"
    level: float = 0.0
    iterations: int = 10_000


def setups(quick: bool = False, nodes: int = 10) -> Iterator[Setup]:
    """Yield every network of the study. ``nodes`` is their size in studies that vary another property."""
    iterations = 2000 if quick else 10_000
    power = max(4, 1 << (nodes - 1).bit_length())  # a hypercube needs one, and a torus of that size has two sides
    for graph in GRAPHS:
        yield Setup("topology", graph, power, iterations=iterations)
    for graph in ("random-regular", "ring", "k-out:20"):
        for size in (10, 100) if quick else (10, 30, 100, 300, 1000):
            yield Setup("size", graph, size, iterations=iterations)
    for gossip in ("push-sum", "running-sum"):
        for percent in (0, 10, 30) if quick else (0, 5, 10, 20, 30):
            yield Setup("loss", "random-regular", nodes, gossip, percent, iterations)
    for gossip in ("push-sum", "running-sum"):
        tenths = (0, 3, 6) if quick else range(7)
        for dead in sorted({round(nodes * tenth / 10) for tenth in tenths}):
            yield Setup("crash", "random-regular", nodes, gossip, dead, iterations)


def trials_of(setup: Setup, trials: int) -> int:
    """Return the number of trials of a network. Large networks get fewer: they take as long as all others together."""
    return trials if setup.nodes <= LARGE else min(trials, LARGE_TRIALS)


def run_setup(setup: Setup, data: Any, lam: float, seed: int = 0) -> dict[str, Any]:
    """Run one trial of a network; the record has the live nodes' accuracies, disagreement and messages."""
    trial = Trial(data, lam, setup.nodes, seed, setup.topology)
    faults = make_faults(_faults(setup))
    exchange = wrap_all(faults, FaultContext(setup.nodes, seed)) if faults else None
    result = run_network(trial, Gadget(gossip=setup.gossip), setup.iterations, exchange=exchange)
    live = result["live"]
    return {
        "accuracies": np.array(result["whole"])[live].tolist(),
        "objective": float(np.mean(np.array(result["objective"])[live])),
        "spectral_gap": spectral.spectral_gap(trial.network),
        **{key: result[key] for key in ("disagreement", "messages", "bytes")},
    }


def study_row(setup: Setup, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarise all trials of a network as one row of the table: means, and deviations over the trials."""
    accuracies = [r["accuracies"] for r in records]
    noted = {"accuracy_min": [min(own) for own in accuracies], "disagreement": [r["disagreement"] for r in records]}
    return {
        **asdict(setup),
        "trials": len(records),
        "accuracy_mean": mean(accuracies),
        "accuracy_sd": spread(accuracies),
        **{key: float(np.mean(values)) for key, values in noted.items()},
        **{f"{key}_sd": float(np.std(values)) if len(values) > 1 else None for key, values in noted.items()},
        "objective_mean": float(np.mean([r["objective"] for r in records])),
        **{key: float(np.mean([r[key] for r in records])) for key in ("messages", "bytes", "spectral_gap")},
    }


def _faults(setup: Setup) -> dict[str, Any] | None:
    if setup.study == "loss" and setup.level > 0:
        return {"loss": setup.level / 100}
    if setup.study == "crash" and setup.level > 0:  # spread over the ring of ids, in the middle of the run
        nodes = [i * setup.nodes // int(setup.level) for i in range(int(setup.level))]
        return {"crash": {"nodes": nodes, "at": setup.iterations // 2}}
    return None
