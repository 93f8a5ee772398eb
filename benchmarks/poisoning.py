"""Two of ten nodes lie: the worst honest node's accuracy under every attack, with plain and with robust mixing."""

from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Table, named, problem_of, publish_tables, runtime_of, say
from gadget_svm import Gadget, build_network
from gadget_svm.data.partition import assign_sites, partition_by_site
from gadget_svm.faults import (
    Constant,
    FalseCounts,
    Fault,
    FaultContext,
    LittleIsEnough,
    SignFlip,
    Zeros,
    flip_labels,
    wrap_all,
)

NODES, LIARS, TOPOLOGY = 10, (3, 7), "random-regular:6"
HONEST = np.setdiff1d(np.arange(NODES), LIARS)
SEEDS = (0, 1, 2)
LAM, ITERATIONS = 1e-3, 500
SETTINGS: dict[str, Any] = {"solver": "implicit", "local_steps": 20, "batch_size": 20, "gossip_rounds": 8}
MIXING: dict[str, dict[str, Any]] = {
    "plain": {"gossip": "diffusion"},
    "clip": {"robust": "clip", "liars": len(LIARS)},
    "trim": {"robust": "trim", "liars": len(LIARS)},
}
ATTACKS: dict[str, Fault | None] = {
    "none": None,
    "sign flip": SignFlip(LIARS),
    "constant 1e6": Constant(LIARS),
    "zeros": Zeros(LIARS),
    "a little is enough": LittleIsEnough(LIARS),
    "a little, z = 1.5": LittleIsEnough(LIARS, z=1.5),
    "rows times 1000": FalseCounts(LIARS),
    "labels flipped": None,
}
SHARDS: dict[str, float | None] = {"even": None, "Dirichlet(1)": 1.0, "Dirichlet(0.1)": 0.1}
"""How rows are dealt: evenly, or by a Dirichlet draw of this alpha for each label."""
ALLOWED_LOSS = 1.0
"""Percentage points that an attack is allowed to cost on even and Dirichlet(1) shards."""
COLUMNS = [
    "shards", "mixing", "attack", "worst honest node, test accuracy, %", "by seed", "points lost to the attack",
    "ratio to what is allowed",
]  # fmt: skip


class Rows(NamedTuple):
    """Training and test rows, with labels -1 and 1."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray


def main(quick: bool = False) -> None:
    """Every deal of the rows, every mixing, every attack; in a quick run one seed and few iterations."""
    rows, note = _rows()
    table, seeds, iterations = Table(COLUMNS), SEEDS[:1] if quick else SEEDS, 50 if quick else ITERATIONS
    for shards in SHARDS:
        for mixing in MIXING:
            say(f"poisoning: {shards}, {mixing}")
            unharmed = np.empty(0)
            for attack in ATTACKS:
                found = np.array([worst_honest(rows, shards, mixing, attack, seed, iterations) for seed in seeds])
                unharmed = found if attack == "none" else unharmed
                lost = float((unharmed - found).max())
                by_seed = ", ".join(f"{accuracy:.2f}" for accuracy in found)
                table.add(shards, mixing, attack, f"{found.min():.2f}", by_seed, f"{lost:+.2f}", lost / ALLOWED_LOSS)
    notes = [
        f"Nodes {LIARS[0]} and {LIARS[1]} of {NODES} lie on a random graph of degree 6; {note}, lambda {LAM:g}, no "
        f"bias, {iterations} iterations of GADGET with "
        f"{', '.join(f'{name}={value!r}' for name, value in SETTINGS.items())}. Models are averages of iterates. "
        "Plain mixing is Push-Sum with all neighbours (diffusion). Accuracy is that of the worst honest node, for each "
        f"of the seeds {', '.join(map(str, seeds))} of the graph, the deal of the rows and the draws; the worst seed "
        "counts. Points lost are to the same run without an attack, also in the worst seed; less than zero is a gain. "
        "Settings were chosen by training accuracy, on the same seeds.",
        "For two liars of ten nodes the z of *a little is enough* is 0 by its authors' formula: the lie is the mean of "
        "the honest nodes. The line below it has z = 1.5. *Labels flipped* is an attack on the liars' rows, not on "
        "messages.",
    ]
    publish_tables("poisoning", "Nodes that lie", notes, [table], None, quick)


def _rows() -> tuple[Rows, str]:
    """Adult with its test rows; or generated rows, of which a fifth are test rows."""
    from gadget_svm import load_dataset

    try:
        d = load_dataset("adult", download=False)
        return Rows(d.X, d.y, d.X_test, d.y_test), "Adult"
    except FileNotFoundError:
        X, y, _, note = named("adult")
        cut = X.shape[0] * 4 // 5
        return Rows(X[:cut], y[:cut], X[cut:], y[cut:]), note


def worst_honest(rows: Rows, shards: str, mixing: str, attack: str, seed: int, iterations: int) -> float:
    """The lowest test accuracy of an honest node, in per cent."""
    alpha = SHARDS[shards]
    sites = assign_sites(
        rows.y, NODES, **({} if alpha is None else {"scheme": "label-skew", "alpha": alpha}), seed=seed
    )
    y = flip_labels(rows.y, sites, LIARS) if attack == "labels flipped" else rows.y
    problem = problem_of(rows.X, y, NODES, partition_by_site(sites)[0])
    algorithm = Gadget(**SETTINGS, **MIXING[mixing])
    network = algorithm.with_transition_of(build_network(TOPOLOGY, NODES, seed=seed))
    run = algorithm.bind(network, LAM, LAM**-0.5, False, problem.shares.sizes)
    fault = ATTACKS[attack]
    exchange = None if fault is None else wrap_all([fault], FaultContext(NODES, seed))
    runtime = runtime_of(problem, network, run, seed, 1, exchange)
    with np.errstate(over="ignore", invalid="ignore"):  # what liars do to plain mixing
        runtime.advance(iterations)
        models = runtime.models()[HONEST, 0]
        right = (np.asarray(rows.X_test @ models.T) > 0) == (rows.y_test > 0)[:, None]
    runtime.close()
    return float(100 * right.mean(axis=0).min())


if __name__ == "__main__":
    main()
