"""Peers on a WAN that exists only on paper, up to 1,000 of them: simulated seconds and bytes until a certified model.

And what that costs here, in time and memory, and the ticks beside those of the simulator on the same rows.
"""

import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.common import Table, publish_tables, ratio, say, seconds_of
from gadget_svm import GadgetSVC, build_network
from gadget_svm.peers.world import Result, network_plan, run
from gadget_svm.peers.world.shards import generate
from gadget_svm.peers.world.world import TERMS

SIZES, QUICK = (10, 100, 300, 1_000), (10, 30)
LATENCY, BANDWIDTH, ROWS, FEATURES = 0.05, 100e6 / 8, 100, 20
TICK = 0.25


def simulated(peers: int) -> tuple[Result, float, float]:
    """Return the run, its wall seconds, and the most memory of its process in MiB."""
    plan = network_plan(peers, latency=LATENCY, bandwidth=BANDWIDTH, rows=ROWS, features=FEATURES, tick=TICK)
    found: list[Result] = []
    wall, _ = seconds_of(lambda: found.append(run(plan, 0)))
    return found[0], wall, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ticks_of_the_simulator(peers: int) -> int:
    """Return the ticks of the simulator until its certificate, on the same rows and a graph of the same degree."""
    plan = network_plan(peers, rows=ROWS, features=FEATURES)
    width = len(str(peers - 1))
    shards = generate([f"peer-{i:0{width}}" for i in range(peers)], plan.data, 0).values()
    X = sp.vstack([shard.X for shard in shards]).tocsr()
    y = np.concatenate([shard.label for shard in shards])
    sites = np.repeat(np.arange(peers), [len(shard.label) for shard in shards])
    degree = int(TERMS["degree"])
    model = GadgetSVC(
        n_nodes=peers, algorithm="pdmm", lam=float(TERMS["lam"]), fit_intercept=True, stopping="gap", tol=0.01,
        topology=build_network(f"random-regular:{degree}", peers), max_iter=5_000,
    )  # fmt: skip
    return int(model.fit(X, y, sites=sites).n_iter_)


def main(quick: bool = False) -> None:
    """Measure all sizes, each in a process of its own."""
    table = Table((
        "peers", "simulated s until all models are good", "until certified", "MB a peer sends", "ticks",
        "ticks until all models are good", "wall s", "MiB", "failure", "ticks of the simulator",
        "ratio to those until models are good",
    ))  # fmt: skip
    for peers in QUICK if quick else SIZES:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            result, wall, memory = pool.submit(simulated, peers).result()
        reference: Any = ticks_of_the_simulator(peers)
        say(f"{peers} peers: {wall:.0f} s, {result.ticks} ticks, simulator {reference} {result.failure}")
        table.add(
            peers, result.models_after, result.certified_after, result.nbytes / peers / 1e6, result.ticks,
            result.model_ticks, wall, memory,
            result.failure or "none", reference, ratio(result.model_ticks or 0, reference),
        )  # fmt: skip
    notes = [
        f"Generated rows, {ROWS} a peer with {FEATURES} features; {1000 * LATENCY:.0f} ms one way, 100 Mbit/s a site, "
        f"a tick every {TICK} s. The last columns: `GadgetSVC` on the same rows and a random graph of the same degree, "
        "until its certificate. Peers go on while they agree that the gap is small and while the certificate is made "
        "and saved, so the last column compares the ticks until all models were within 1 % of the optimum.",
    ]
    publish_tables("peer_wan", "Peers on a simulated WAN", notes, [table], quick=quick)


if __name__ == "__main__":
    main()
