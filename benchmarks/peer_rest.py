"""Real peers at rest: CPU, traffic and disk writes once the model is certified and nothing changes.

`--seconds` is how long they are watched. Each peer has a network namespace of its own, where traffic is counted with
all headers; so this needs root. In the end one more site joins, and the network has to certify again.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.peer_hosts import Hosts
from tests.support.real_peers import RealPeers, differing_rows

from benchmarks.common import Table, publish_tables, say

PEERS, SECONDS, QUICK = 5, 300.0, 20.0
CALM_S = 10.0  # between the certificate and the first look
CPU_LIMIT, TRAFFIC_LIMIT = 0.005, 2048.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
DEFAULT_PACE = {"tick": 0.05, "heartbeat": 1.0, "suspect": 5.0, "dead": 5.0, "snapshot": 10.0, "export": 30.0}


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / TICKS_PER_SECOND


def written(pid: int) -> int:
    """Return the bytes that a process has sent to disks so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def look(peers: RealPeers, hosts: Hosts, names: list[str]) -> dict[str, dict[str, float]]:
    """Return the counters of all peers. It asks each once, which costs a peer about a millisecond."""
    found = {}
    for place, name in enumerate(names):
        status, pid = peers.status(name), peers.processes[name].pid
        assert status is not None, f"no status of {name}"
        received, sent = hosts.nbytes(place)
        found[name] = {
            "time": time.monotonic(), "cpu": cpu_seconds(pid), "disk": written(pid), "received": received, "sent": sent,
            **{key: status[key] for key in ("messages_sent", "bytes_sent", "snapshots", "ticks")},
        }  # fmt: skip
    return found


def certified(sites: int) -> Any:
    """Return a test of a status: a certificate of so many sites is on disk, and the peer rests."""
    return lambda status: status["certified"] and len(status["certified"]["sites"]) == sites and status["at_rest"]


def main(quick: bool = False, seconds: float | None = None) -> None:
    """Watch five peers, then let a sixth join."""
    seconds = seconds or (QUICK if quick else SECONDS)
    if missing := Hosts.missing():
        say(f"peer_rest: {missing}")
        return
    rows = differing_rows(PEERS + 1)
    names, late = list(rows)[:PEERS], list(rows)[PEERS]
    with (
        tempfile.TemporaryDirectory() as folder,
        Hosts(PEERS + 1) as hosts,
        RealPeers(Path(folder), rows, hosts=hosts, sites=names, **DEFAULT_PACE) as peers,
    ):
        peers.start(*names)
        peers.wait_for(names, certified(PEERS))
        time.sleep(CALM_S)
        say(f"peer_rest: certified; watched for {seconds:g} s")
        first = look(peers, hosts, names)
        time.sleep(seconds)
        last = look(peers, hosts, names)
        began = time.monotonic()
        peers.start(late)
        peers.wait_for([*names, late], certified(PEERS + 1))
        woken = time.monotonic() - began
    table = Table((
        "peer", "CPU, % of a core", "B/s sent", "B/s received", "messages/s", "B/s of messages", "ticks", "snapshots",
        "bytes written", "traffic / 2 KB/s", "CPU / 0.5 %",
    ))  # fmt: skip
    for name in names:
        took = last[name]["time"] - first[name]["time"]
        change = {key: last[name][key] - first[name][key] for key in first[name]}
        cpu, most = change["cpu"] / took, max(change["sent"], change["received"]) / took
        table.add(
            name, 100 * cpu, change["sent"] / took, change["received"] / took, change["messages_sent"] / took,
            change["bytes_sent"] / took, int(change["ticks"]), int(change["snapshots"]), int(change["disk"]),
            most / TRAFFIC_LIMIT, cpu / CPU_LIMIT,
        )  # fmt: skip
    notes = [
        f"{PEERS} peers at the default pace, certified, watched for {seconds:g} s. Bytes are those of the network "
        "card, with the headers of TCP and IP; bytes of messages are before TLS.",
        f"After that a sixth site joined: all six had a certified model of six sites {woken:.1f} s after its process "
        "was started.",
    ]
    publish_tables("peer_rest", "Peers at rest", notes, [table], quick=quick)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help=f"how long to watch; default: {SECONDS:g}")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    main(asked.quick, asked.seconds)
