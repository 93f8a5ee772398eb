"""Five real sites, three of which accept no connection, beside five open ones: time and ticks until certified.

Each site is a process on a network namespace of its own, so this needs root.
"""

import tempfile
import time
from pathlib import Path

from tests.support.peer_hosts import Hosts
from tests.support.real_peers import RealPeers, differing_rows

from benchmarks.common import Table, publish_tables, ratio, say

CLOSED = {"site-3": "outbound", "site-4": "refusing", "site-5": "silent"}
RUNS, QUICK = 3, 1


def certified_after(closed: dict[str, str]) -> tuple[float, int]:
    """Return the seconds from when all are live until all have a certified model, and the most ticks of a site."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Hosts(5) as hosts,
        RealPeers(Path(folder), differing_rows(5), hosts=hosts, closed=closed) as peers,
    ):
        peers.start()
        peers.wait_for(peers.names, lambda status: status["phase"] == "live")
        began = time.monotonic()
        peers.wait_for(peers.names, lambda status: (status["certified"] or {}).get("saved"))
        took = time.monotonic() - began
        return took, max((peers.status(name) or {"ticks": 0})["ticks"] for name in peers.names)


def main(quick: bool = False) -> None:
    """Run both networks in turns, and report the quickest run of each."""
    if missing := Hosts.missing():
        say(f"peer_firewall: {missing}")
        return
    found: dict[str, list[tuple[float, int]]] = {"five open": [], "two open": []}
    for _ in range(QUICK if quick else RUNS):
        for name, closed in (("five open", {}), ("two open", CLOSED)):
            found[name].append(certified_after(closed))
            say(f"peer_firewall: {name}: {found[name][-1][0]:.1f} s, {found[name][-1][1]} ticks")
    table = Table(("sites", "s until certified", "ticks", "ticks / five open", "s / five open"))
    first = min(found["five open"])
    for name, runs in found.items():
        seconds, ticks = min(runs)
        table.add(name, seconds, ticks, ratio(ticks, first[1]), ratio(seconds, first[0]))
    notes = [
        "Five sites of 120 rows with 12 features, with rules that differ; a tick every 20 ms, a heartbeat every 0.2 s, "
        "gap 1 %. One of the three says that it only dials out; the ports of the others refuse, or answer nothing. "
        "From when all processes are live.",
    ]
    publish_tables("peer_firewall", "Sites that accept no connection", notes, [table], quick=quick)


if __name__ == "__main__":
    main()
