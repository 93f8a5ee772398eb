"""The paper's future work: "impact of the underlying network structure" and "resilience to node failures".

Owns which networks and faults are tried; running and judging them is `methods`' and `trials`' work.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gadget_svm import spectral
from gadget_svm.algorithms import Gadget
from gadget_svm.experiments.methods import run_network
from gadget_svm.experiments.trials import Trial
from gadget_svm.faults import World, make_faults, wrap_all

GRAPHS = (
    "line", "ring", "tree", "star", "grid", "torus", "small-world", "scale-free", "erdos-renyi", "random-regular",
    "hypercube", "exponential", "complete",
)  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """One network under one fault; ``level`` is what the study varies."""

    study: str
    topology: str = "random-regular"
    nodes: int = 10
    gossip: str = "push-sum"
    level: float = 0.0
    iterations: int = 10_000


def setups(quick: bool = False) -> Iterator[Setup]:
    """Every network of the study."""
    iterations = 2000 if quick else 10_000
    for graph in GRAPHS:
        yield Setup("topology", graph, 16, iterations=iterations)
    for graph in ("random-regular", "ring", "k-out:20"):
        for nodes in (10, 100) if quick else (10, 30, 100, 300, 1000):
            yield Setup("size", graph, nodes, iterations=iterations)
    for gossip in ("push-sum", "running-sum"):
        for percent in (0, 10, 30) if quick else (0, 5, 10, 20, 30):
            yield Setup("loss", gossip=gossip, level=percent, iterations=iterations)
    for gossip in ("push-sum", "running-sum"):
        for dead in (0, 3, 6) if quick else (0, 1, 2, 3, 4, 5, 6):
            yield Setup("crash", gossip=gossip, level=dead, iterations=iterations)


def run_setup(setup: Setup, data: Any, lam: float, seed: int = 0) -> dict[str, Any]:
    """The record of one network: accuracy over the nodes that are left, disagreement, messages."""
    trial = Trial(data, lam, setup.nodes, seed, setup.topology)
    faults = make_faults(_faults(setup))
    exchange = wrap_all(faults, World(setup.nodes, seed)) if faults else None
    result = run_network(trial, Gadget(gossip=setup.gossip), setup.iterations, exchange=exchange)
    left = np.array(result["whole"])[result["here"]]
    return {
        **asdict(setup),
        "accuracy_mean": float(left.mean()),
        "accuracy_min": float(left.min()),
        "objective_mean": float(np.mean(np.array(result["objective"])[result["here"]])),
        "disagreement": result["disagreement"],
        "messages": result["messages"],
        "bytes": result["bytes"],
        "spectral_gap": spectral.spectral_gap(trial.network),
    }


def _faults(setup: Setup) -> dict[str, Any] | None:
    if setup.study == "loss" and setup.level > 0:
        return {"loss": setup.level / 100}
    if setup.study == "crash" and setup.level > 0:  # spread over the ring of ids, in the middle of the run
        nodes = [3 * i % setup.nodes for i in range(int(setup.level))]
        return {"crash": {"nodes": nodes, "at": setup.iterations // 2}}
    return None
