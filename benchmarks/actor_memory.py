"""Memory of Ray's actors that read their own shards: rows of CCAT's shape from svmlight text, above tiny shards."""

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sklearn.datasets import dump_svmlight_file

from benchmarks.common import Table, generated, publish_tables, ratio, say
from gadget_svm import GadgetSVC, Observer
from gadget_svm.cluster.driver import RayRuntime

FEATURES, PER_ROW, ACTORS, TICKS, EVERY = 47_236, 76, 2, 60, 5
TINY = 2


def written(folder: Path, rows: int) -> list[str]:
    """A shard an actor, all of the same width."""
    paths = []
    for shard in range(ACTORS):
        X, y = generated(rows, FEATURES, PER_ROW, shard)
        y[:2] = (-1, 1)
        paths.append(str(folder / f"{rows}-{shard}.svm"))
        dump_svmlight_file(X, y, paths[-1], zero_based=False)
    return paths


def of_process(pid: int, what: str) -> float:
    """A line of /proc/PID/status, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1024


def measured(places: list[str]) -> tuple[float, float]:
    """The larger of the actors: its peak, and the most it had between ticks."""
    pids, most, begin = list[int](), defaultdict[str, float](float), RayRuntime.begin

    def noted(self: RayRuntime, *args: Any, **settings: Any) -> None:
        begin(self, *args, **settings)
        pids[:] = self.ray.get([actor.ping.remote() for actor in self.pool.actors])

    class Memory(Observer):
        def on_record(self, record: Any, view: Any) -> None:  # noqa: ARG002
            for what in ("VmHWM", "VmRSS"):
                most[what] = max(most[what], *(of_process(pid, what) for pid in pids))

    model = GadgetSVC(
        lam=1e-4, algorithm="pdmm", max_iter=TICKS, stopping=None, record_every=EVERY, topology="complete",
        engine="ray", engine_options={"actors": ACTORS, "object_store_memory": 10**8}, observers=[Memory()],
    )  # fmt: skip
    with patch.object(RayRuntime, "begin", noted):
        model.fit_shards(places)
    return most["VmHWM"], most["VmRSS"]


def main(quick: bool = False) -> None:
    """Twice, after actors with next to no rows."""
    rows = 2_000 if quick else 60_000
    csr = rows * (PER_ROW * 12 + 4) / 2**20
    table = Table(("run", "rows", "CSR, MiB", "what", "MiB above tiny shards", "times the CSR"))
    with tempfile.TemporaryDirectory() as folder:
        tiny = measured(written(Path(folder), TINY))
        places = written(Path(folder), rows)
        for run in (1, 2):
            say(f"actor_memory: {rows:,} rows, run {run}")
            for what, found, before in zip(("peak", "while learning"), measured(places), tiny, strict=True):
                table.add(run, rows, csr, what, found - before, ratio(found - before, csr))
    notes = [
        f"{ACTORS} actors, each with a shard of its own, {FEATURES:,} features, {PER_ROW} a row; PDMM, {TICKS} ticks; "
        f"the larger of them, sampled every {EVERY} ticks. An actor with {TINY} rows has {tiny[1]:.0f} MiB, most of "
        "it Python, Ray and compiled code.",
    ]
    publish_tables("actor_memory", "Memory of actors that read svmlight text", notes, [table], quick=quick)
