"""The paper's future work: "impact of the underlying network structure" and "resilience to node failures".

Owns which networks and faults are tried; running and judging them is `methods`' and `trials`' work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gadget_svm import spectral
from gadget_svm.algorithms import Gadget
from gadget_svm.faults import FaultContext, make_faults, wrap_all
from gadget_svm.reproduction.methods import run_network
from gadget_svm.reproduction.tables import spread
from gadget_svm.reproduction.trials import Trial

GRAPHS = (
    "line", "ring", "tree", "star", "grid", "torus", "small-world", "scale-free", "erdos-renyi", "random-regular",
    "hypercube", "exponential", "complete",
)  # fmt: skip
LARGE = 100
"""Networks of more nodes than this are tried once."""


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
    """Every network of the study; ``nodes`` is the size of those whose size is not what is studied."""
    iterations = 2000 if quick else 10_000
    for graph in GRAPHS:
        yield Setup("topology", graph, _comparable(nodes), iterations=iterations)
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


def _comparable(nodes: int) -> int:
    """At least so many nodes, of which every graph can be made: a hypercube has a power of two, a torus two sides."""
    return max(4, 1 << (nodes - 1).bit_length())


def trials_of(setup: Setup, trials: int) -> int:
    """All of them, but one of a network so large that it takes as long as all the others."""
    return trials if setup.nodes <= LARGE else 1


def run_setup(setup: Setup, data: Any, lam: float, seed: int = 0) -> dict[str, Any]:
    """The record of one trial of a network: accuracies of the nodes that are left, disagreement, messages."""
    trial = Trial(data, lam, setup.nodes, seed, setup.topology)
    faults = make_faults(_faults(setup))
    exchange = wrap_all(faults, FaultContext(setup.nodes, seed)) if faults else None
    result = run_network(trial, Gadget(gossip=setup.gossip), setup.iterations, exchange=exchange)
    here = result["here"]
    return {
        "accuracies": np.array(result["whole"])[here].tolist(),
        "objective": float(np.mean(np.array(result["objective"])[here])),
        "disagreement": result["disagreement"],
        "messages": result["messages"],
        "bytes": result["bytes"],
        "spectral_gap": spectral.spectral_gap(trial.network),
    }


def study_row(setup: Setup, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All trials of a network as one row of the table: means, and deviations over the trials."""
    accuracies, worst = [r["accuracies"] for r in records], [min(r["accuracies"]) for r in records]
    apart = [r["disagreement"] for r in records]
    return {
        **asdict(setup),
        "trials": len(records),
        "accuracy_mean": float(np.mean([np.mean(values) for values in accuracies])),
        "accuracy_sd": spread(accuracies),
        "accuracy_min": float(np.mean(worst)),
        "accuracy_min_sd": _deviation(worst),
        "objective_mean": float(np.mean([r["objective"] for r in records])),
        "disagreement": float(np.mean(apart)),
        "disagreement_sd": _deviation(apart),
        "messages": float(np.mean([r["messages"] for r in records])),
        "bytes": float(np.mean([r["bytes"] for r in records])),
        "spectral_gap": float(np.mean([r["spectral_gap"] for r in records])),
    }


def _deviation(values: Sequence[float]) -> float | None:
    return float(np.std(values)) if len(values) > 1 else None


def _faults(setup: Setup) -> dict[str, Any] | None:
    if setup.study == "loss" and setup.level > 0:
        return {"loss": setup.level / 100}
    if setup.study == "crash" and setup.level > 0:  # spread over the ring of ids, in the middle of the run
        nodes = [i * setup.nodes // int(setup.level) for i in range(int(setup.level))]
        return {"crash": {"nodes": nodes, "at": setup.iterations // 2}}
    return None
