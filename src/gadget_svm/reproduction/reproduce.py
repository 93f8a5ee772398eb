"""The paper's evaluation, from data sets to tables: which cells there are, computing those not yet kept, assembling.

Owns the plan. Progress goes through a callback, files through `tables`, `figures` and `page`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from gadget_svm.report.machine import machine
from gadget_svm.reproduction import published_numbers
from gadget_svm.reproduction.loading import loading_times
from gadget_svm.reproduction.methods import METHODS, Budget
from gadget_svm.reproduction.network_study import Setup, run_setup, setups, study_row, trials_of
from gadget_svm.reproduction.store import Result, Store, code_stamp
from gadget_svm.reproduction.tables import Row, better, summarise
from gadget_svm.reproduction.trials import Trial, fingerprint
from gadget_svm.theory import corrected_bound

TABLE2 = ("gadget", "pegasos", "pegasos-equal", "pegasos-last", "as-published", "svm-perf-all", "liblinear", "optimum")
TABLE3 = ("gadget", "svm-perf", "svm-sgd", "mom-dsvm", "gadget-2ps", "local-only")
ONCE = ("liblinear", "optimum", "svm-perf-all")
"""Methods that draw nothing: one trial says all."""
PARTS = ("table1", "table2", "table3", "table4", "figures", "network")
SMALL = {"ccat": 3000}
"""Iterations of GADGET on vectors so long that 10,000 would take minutes a trial; it has settled by then."""

KEPT = {"promise": "promise", "proven": "gap"}
"""What a method promises and proves of its distance from the optimum, where it does: column and key of its records."""

Cell = tuple[str, str, int]  # data set, method, trial


@dataclass
class Reproduction:
    """One run of ``gadget reproduce``."""

    out: Path = Path("results")
    data_dir: Path | None = None
    nodes: int = 10
    trials: int = 5
    quick: bool = False
    tell: Callable[[str], object] = bool  # shows what is being computed; by default to nobody
    missing: dict[str, str] = field(default_factory=dict)

    @cached_property
    def store(self) -> Store:
        """Where finished cells are kept."""
        return Store(self.out / "cells")

    @cached_property
    def sets(self) -> dict[str, Any]:
        """The data sets on this machine; ``missing`` says how to get the others."""
        from gadget_svm.data import DataFileError, load_dataset
        from gadget_svm.data.catalog import ENTRIES
        from gadget_svm.data.datasets import data_folders

        data_folders(self.data_dir)  # a folder named in vain is said at once, not once for every data set
        found = {}
        for name in (*published_numbers.SETS, "gisette"):
            if elsewhere := self._elsewhere(name):
                self.missing[name] = elsewhere
                continue
            try:
                data = load_dataset(name, data_dir=self.data_dir, download=False)
            except DataFileError as error:
                self.missing[name] = str(error)
                continue
            except FileNotFoundError:
                self.missing[name] = f"not found; `gadget data fetch {name}` gets it, from {ENTRIES[name].page}"
                continue
            if data.X.shape[0] < 1000:
                self.missing[name] = (
                    f"only a sample of {data.X.shape[0]} rows is here; `gadget data fetch {name}` gets all"
                )
                continue
            found[name] = data
        return found

    def _elsewhere(self, name: str) -> str | None:
        """Who names a folder gets that folder's data sets and no others: why this one is left out."""
        from gadget_svm.data.datasets import find_dataset

        folder = find_dataset(name, self.data_dir)
        if self.data_dir is None or folder is None or folder.resolve().is_relative_to(self.data_dir.resolve()):
            return None
        return f"not in {self.data_dir}, the folder named; there is one in {folder}, used if no folder is named"

    @cached_property
    def marks(self) -> dict[str, str]:
        """A fingerprint of every data set, for the cells' keys."""
        return {name: fingerprint(data) for name, data in self.sets.items()}

    @cached_property
    def here(self) -> dict[str, str]:
        """What else determines a cell: the code that makes it, and the machine its seconds are of."""
        return {"code": code_stamp(), "machine": machine()}

    def lam(self, name: str) -> float:
        """The paper's lambda; Gisette's is ours."""
        return float(self.sets[name].lam or published_numbers.GISETTE_LAMBDA)

    def budget(self, name: str) -> Budget:
        """How much work a cell may do."""
        iterations = SMALL.get(name, 10_000)
        return Budget(iterations // 10, 50, 2, 0.15) if self.quick else Budget(iterations)

    def cells(self, part: str) -> Iterator[Cell]:
        """What a part of the evaluation needs."""
        methods = {"table2": TABLE2, "table3": (*TABLE3, "optimum"), "table4": ("gadget", "pegasos"),
                   "figures": ("gadget-trace", "pegasos-trace", "liblinear")}.get(part, ())  # fmt: skip
        for name in self.sets:
            for method in methods:
                only_first = part == "figures" or method in ONCE
                yield from ((name, method, trial) for trial in range(1 if only_first else self.trials))

    def result(self, cell: Cell) -> Result:
        """A cell's record, computed if it is not kept."""
        name, method, number = cell
        budget = self.budget(name)
        key = {"method": method, "data": name, "rows": self.marks[name], "lam": self.lam(name), "nodes": self.nodes,
               "trial": number, "budget": asdict(budget), **self.here}  # fmt: skip

        def compute() -> Result:
            self.tell(f"{name}, {method}, trial {number + 1}")
            return METHODS[method](Trial(self.sets[name], self.lam(name), self.nodes, number), budget)

        return self.store.cell(key, compute)

    def results(self, name: str, method: str) -> list[Result]:
        """All trials of a method."""
        return [self.result(cell) for cell in self._trials(name, method)]

    def _trials(self, name: str, method: str) -> list[Cell]:
        return [(name, method, trial) for trial in range(1 if method in ONCE else self.trials)]

    def table1(self) -> list[Row]:
        """The data sets, as loaded."""
        rows = []
        for name, d in self.sets.items():
            density = 100 * d.X.nnz / (d.X.shape[0] * d.X.shape[1])
            rows.append({"dataset": name, "train": d.X.shape[0], "test": d.X_test.shape[0], "features": d.X.shape[1],
                         "density_percent": density, "lam": self.lam(name), "note": d.note})  # fmt: skip
        return rows

    def table2(self) -> list[Row]:
        """GADGET against centralised Pegasos; who wins by the paper's lexicographic comparison."""
        rows = []
        for name in self.sets:
            paper = published_numbers.TABLE2.get
            printed = paper((name, "pegasos"))
            gadget, pegasos = self.results(name, "gadget"), self.results(name, "pegasos")
            block = [
                summarise(name, "gadget", gadget, paper((name, "gadget"))),
                summarise(name, "gadget (last iterate)", gadget, paper((name, "gadget")), last=True),
                summarise(name, "pegasos", pegasos, printed),
                summarise(
                    name, "pegasos (as many examples)", self.results(name, "pegasos-equal"), paper((name, "pegasos"))
                ),
                summarise(name, "pegasos (last iterate)", self.results(name, "pegasos-last"), paper((name, "pegasos"))),
                summarise(name, "as-published", self.results(name, "as-published"), paper((name, "gadget"))),
                summarise(name, "svm-perf (all rows)", self.results(name, "svm-perf-all")),
                summarise(name, "liblinear", self.results(name, "liblinear")),
            ]
            block = [self._with_gap(row) | {"promise": self._promise(row)} for row in block]
            first = {"winner": better(block[0], block[2]), "winner_equal": better(block[0], block[3])}
            none = dict.fromkeys(first)
            rows += [row | (first if i == 0 else none) for i, row in enumerate(block)]
        return rows

    def table3(self) -> list[Row]:
        """GADGET against the others, each on every node's shard (or, MoM-DSVM, over the same network)."""
        return [self._third(name, method) for name in self.sets for method in TABLE3]

    def _third(self, name: str, method: str) -> Row:
        results = self.results(name, method)
        row = self._with_gap(summarise(name, method, results, published_numbers.TABLE3.get((name, method))))
        worst = max(max(result["objective"]) for result in results)
        row["worst_gap_percent"] = 100 * (worst / row["optimum"] - 1)
        return row | {f"{word}_percent": _percent(results, key) for word, key in KEPT.items()}

    def _promise(self, row: Row) -> float | None:
        """How far above the optimum the method promises to end: by its epsilon, or by Pegasos' theorem."""
        if row["method"].startswith("svm-perf"):
            return float(row["epsilon"])
        if not row["method"].startswith("pegasos"):
            return None
        X, lam, T = self.sets[row["dataset"]].X, self.lam(row["dataset"]), int(row["iterations_mean"])
        longest = math.sqrt(float(X.multiply(X).sum(axis=1).max()))
        return corrected_bound(longest + math.sqrt(lam), lam, T, np.zeros(T))

    def _with_gap(self, row: Row) -> Row:
        """How far the objective is above the certified lower bound of the optimum, in per cent of it."""
        bound = self.result((row["dataset"], "optimum", 0))["bound"]
        return row | {"optimum": bound, "gap_percent": 100 * (row["objective_mean"] / bound - 1)}

    def table4(self) -> list[Row]:
        """With loading: every node reads its own file, the centre reads them all; the paper's speed-up factor."""
        rows = []
        for name in self.sets:
            load = self.loading(name)
            block = []
            for method, reading in (("gadget", load["nodes"]), ("pegasos", load["central"])):
                row = summarise(name, method, self.results(name, method), published_numbers.TABLE4.get((name, method)))
                block.append(row | {"load_seconds": reading, "total_seconds": reading + row["seconds_mean"]})
            factor = block[0]["total_seconds"] / block[1]["total_seconds"]
            block[0] |= {"speedup": factor, "paper_speedup": published_numbers.SPEEDUP.get(name)}
            rows += [block[0], block[1] | {"speedup": None, "paper_speedup": None}]
        return rows

    def loading(self, name: str) -> Result:
        """How long reading a data set takes, for the centre and for the nodes."""
        key = {
            "method": "loading",
            "data": name,
            "rows": self.marks[name],
            "nodes": self.nodes,
            "code": code_stamp(),
            "machine": machine(),
        }

        def compute() -> Result:
            self.tell(f"{name}, reading files")
            return loading_times(Trial(self.sets[name], self.lam(name), self.nodes, 0))

        return self.store.cell(key, compute)

    def network(self) -> list[Row]:
        """The network study, on Adult where it is here, else on the first data set there is."""
        return [
            {"dataset": self._studied, **study_row(setup, [self._network_cell(setup, i) for i in self._repeats(setup)])}
            for setup in self._setups
        ]

    def network_steps(self) -> Iterator[Callable[[], Result]]:
        """The same, piece by piece."""
        for setup in self._setups:
            yield from (partial(self._network_cell, setup, trial) for trial in self._repeats(setup))

    @property
    def _studied(self) -> str:
        return "adult" if "adult" in self.sets else next(iter(self.sets))

    @property
    def _setups(self) -> Iterator[Setup]:
        return setups(self.quick, self.nodes)

    def _repeats(self, setup: Setup) -> range:
        return range(trials_of(setup, self.trials))

    def _network_cell(self, setup: Setup, trial: int) -> Result:
        name = self._studied
        key = {"method": "network", "data": name, "rows": self.marks[name], "lam": self.lam(name), **asdict(setup),
               "trial": trial, **self.here}  # fmt: skip

        def compute() -> Result:
            self.tell(
                f"network: {setup.study}, {setup.topology}, {setup.nodes} nodes, {setup.gossip}, {setup.level:g}, "
                f"trial {trial + 1}"
            )
            return run_setup(setup, self.sets[name], self.lam(name), trial)

        return self.store.cell(key, compute)

    def traces(self, name: str) -> tuple[dict[str, Any], float]:
        """What a figure draws: the first trial's traces, and the optimum."""
        drawn = {method: self.result((name, f"{method}-trace", 0))["trace"] for method in ("gadget", "pegasos")}
        return drawn, float(self.result((name, "liblinear", 0))["objective"][0])


def _percent(results: list[Result], key: str) -> float | None:
    """The largest of all trials, in per cent; None if the method says nothing of the kind."""
    return 100 * max(float(result[key]) for result in results) if key in results[0] else None
