"""Simulated histories of peers with every fault: how many seeds of each scenario were run, and which of them failed.

`python -m benchmarks.peer_seeds 0:1000` runs these seeds of every scenario, `python -m benchmarks.peer_seeds 0:1000
chaos` of one. Exits with 1 if a seed fails.
"""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from statistics import mean, median
from typing import Any

from benchmarks.common import Table, publish_tables, say
from gadget_svm.peers.world import Result, load, names, run

SEEDS, QUICK = range(600), range(10)
CHUNK = 10
COLUMNS = (
    "scenario", "what happens", "seeds", "failed", "failing seeds", "simulated s, median", "certified after s, median",
    "messages, mean", "CPU s, mean", "hours simulated in all",
)  # fmt: skip


def run_all(chosen: Sequence[str], seeds: range, processes: int) -> dict[str, list[Result]]:
    """Return the results of every scenario."""
    results: dict[str, list[Result]] = {}
    with ProcessPoolExecutor(processes) as pool:
        for name in chosen:
            results[name] = list(pool.map(run, repeat(name, len(seeds)), seeds, chunksize=CHUNK))
            failed = [result for result in results[name] if result.failure]
            say(f"{name}: {len(seeds)} seeds, {len(failed)} failed")
            for result in failed[:5]:
                say(f"  {result.command}: {result.failure}")
    return results


def table_of(results: dict[str, list[Result]]) -> Table:
    """Return one line per scenario."""
    table = Table(COLUMNS)
    for name, runs in results.items():
        failing = [result.seed for result in runs if result.failure]
        after = [result.certified_after for result in runs if result.certified_after is not None]
        table.add(
            name, load(name).title, len(runs), len(failing), " ".join(map(str, failing[:20])),
            median(result.seconds for result in runs), median(after) if after else None,
            mean(result.messages for result in runs), mean(result.cpu for result in runs),
            sum(result.seconds for result in runs) / 3600,
        )  # fmt: skip
    return table


def main(quick: bool = False, seeds: range | None = None, chosen: Sequence[str] = ()) -> int:
    """Run the seeds and publish the table; return how many failed."""
    seeds = seeds or (QUICK if quick else SEEDS)
    results = run_all(chosen or names(), seeds, os.cpu_count() or 1)
    runs = [result for some in results.values() for result in some]
    failed = sum(bool(result.failure) for result in runs)
    notes = [
        f"{len(runs):,} simulated histories of real peers' code, seeds {seeds.start} to {seeds.stop - 1} of "
        f"{len(results)} scenarios; {failed} failed. `gadget peer simulate SCENARIO --seed N --trace` repeats one.",
        "After the faults of a scenario have stopped, every live peer must come within 1 % of the optimum of the live "
        "peers' rows and hold a certified model of them; see `gadget_svm/peers/world/invariants.py` for what must hold "
        "all the time.",
        f"{sum(result.wire for result in runs):,} of the histories encoded and decoded every message.",
    ]
    if not chosen:
        publish_tables("peer_seeds", "Peers in simulated worlds", notes, [table_of(results)], quick=quick)
    return failed


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """Return what the command line says."""
    first, _, last = words[0].partition(":")
    return {"seeds": range(int(first), int(last)), "chosen": words[1:]}


if __name__ == "__main__":
    sys.exit(bool(main(**parsed(sys.argv[1:])) if len(sys.argv) > 1 else main()))
