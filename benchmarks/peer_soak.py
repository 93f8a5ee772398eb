"""Ten real peers for ten minutes: whether memory, file descriptors and threads of any of them grow."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Table, publish_tables, say

PEERS, SECONDS, WARM_UP = 10, 600.0, 60.0
QUICK = 20.0
EVERY = 5.0


def children(pid: int) -> list[int]:
    """The processes that this one started and that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(parts[1]) == pid and parts[0] != "Z":
            found.append(int(path.parent.name))
    return sorted(found)


def sample(pid: int) -> tuple[float, int, int] | None:
    """MiB of memory, open file descriptors and threads; None once it has ended."""
    home = Path(f"/proc/{pid}")
    try:
        lines = dict(line.split(":", 1) for line in (home / "status").read_text().splitlines())
        return int(lines["VmRSS"].split()[0]) / 1024, len(list((home / "fd").iterdir())), int(lines["Threads"])
    except (OSError, KeyError):
        return None


def watch(demo: "subprocess.Popen[bytes]", warm_up: float) -> dict[int, list[tuple[float, float, int, int]]]:
    """Samples of every peer from the end of the warm-up until the first of them leaves."""
    seen: dict[int, list[tuple[float, float, int, int]]] = {}
    start: float | None = None
    while demo.poll() is None:
        time.sleep(EVERY if warm_up > EVERY else 1.0)
        peers = children(demo.pid)
        if len(peers) < PEERS:
            if start is not None:
                break  # they are leaving
            continue
        start = start or time.monotonic()
        age = time.monotonic() - start
        if age < warm_up:
            continue
        for pid in peers:
            if (found := sample(pid)) is not None:
                seen.setdefault(pid, []).append((age, *found))
    return seen


def main(quick: bool = False) -> None:
    """Start `gadget peer demo`, look at its processes from outside, and fit a line to each one's memory."""
    seconds, warm_up = (QUICK, 5.0) if quick else (SECONDS, WARM_UP)
    say(f"peer_soak: {PEERS} peers for {seconds:.0f} s")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "gadget_svm", "peer", "demo", "--peers", str(PEERS), "--data", "adult", "--seconds",
            str(seconds), "--out", f"{folder}/demo", "--quiet",
        ]  # fmt: skip
        demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        seen = watch(demo, warm_up)
        said = demo.communicate()[0].decode(errors="replace")
    if demo.returncode:
        raise RuntimeError(f"the peers did not end in good order:\n{said[-3000:]}")
    table = Table(
        ("peer", "minutes", "MiB at first", "MiB at last", "MiB a minute", "descriptors, first", "last",
         "threads, first", "last", "memory, last / first")
    )  # fmt: skip
    for number, (_, rows) in enumerate(sorted(seen.items())):
        table.add(number, *_line(rows))
    notes = [
        f"`gadget peer demo --peers {PEERS} --data adult --seconds {seconds:g}`, looked at every {EVERY:g} s after a "
        f"warm-up of {warm_up:g} s. First and last are medians of the first and the last fifth of the "
        "samples, the slope is that of a straight line through all of them.",
        f"What the demo said: {said.strip().splitlines()[-1] if said.strip() else 'nothing'}",
    ]
    publish_tables("peer_soak", "Ten peers for ten minutes", notes, [table], quick=quick)


def _line(rows: list[tuple[float, float, int, int]]) -> tuple[Any, ...]:
    age, memory, descriptors, threads = np.array(rows, dtype=float).T
    fifth = max(1, len(age) // 5)
    first, last = (
        [float(np.median(part[at])) for part in (memory, descriptors, threads)]
        for at in (slice(0, fifth), slice(-fifth, None))
    )
    slope = 60 * float(np.polyfit(age, memory, 1)[0]) if len(age) > 2 else 0.0
    return (
        (age[-1] - age[0]) / 60, first[0], last[0], slope, round(first[1]), round(last[1]), round(first[2]),
        round(last[2]), last[0] / first[0],
    )  # fmt: skip


if __name__ == "__main__":
    main()
