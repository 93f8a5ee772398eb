"""Runs the paper's evaluation, from data sets to the rows of the tables.

Owns the plan of the results. Computes results that are not stored, assembles rows, and reports progress to a callback;
`page` writes the files.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gadget_svm.report.machine import machine
from gadget_svm.reproduction.methods import METHODS, Budget
from gadget_svm.reproduction.network_study import Setup, run_setup, setups, study_row, trials_of
from gadget_svm.reproduction.published_numbers import GISETTE_LAMBDA, PUBLISHED, SETS, SPEEDUP, Figure
from gadget_svm.reproduction.tables import READINGS, TEXTS, Row, better, summarise
from gadget_svm.reproduction.trials import Result, Trial, code_digest, fingerprint, majority_percent, stored
from gadget_svm.theory import corrected_bound


class Line(NamedTuple):
    """A row that a table has for every data set."""

    label: str
    method: str
    published: str = ""  # the paper's name of the system, where it prints figures
    last: bool = False  # whether the last iterates are evaluated, not the averaged ones


PARTS = ("table1", "table2", "table3", "table4", "figures", "network")
LINES = {part: [Line(**line) for line in TEXTS[part].get("lines", [])] for part in PARTS}
METHODS_OF = {
    part: [*dict.fromkeys(line.method for line in LINES[part]), *TEXTS[part].get("methods", [])] for part in PARTS
}
ONCE = ("liblinear", "optimum", "svm-perf-all", "gadget-trace", "pegasos-trace", "loading")
"""Methods with one trial: they draw no random numbers, or a figure shows the first trial only."""
FEWER_ITERATIONS = {"ccat": 3000}
"""Iterations of GADGET on data sets with very long vectors: 10,000 would take minutes and hardly change the result."""
LEAST_ROWS = 1000
"""A data set with fewer rows is a sample, and is left out."""


@dataclass
class Reproduction:
    """One run of ``gadget reproduce``.

    Parameters
    ----------
    out : Path, default "results"
        The folder for tables, figures, the page and, in ``cells``, every finished result.
    data_dir : Path, optional
        The folder with the paper's data sets; without it, every known folder is searched.
    nodes : int, default 10
        Nodes of the network.
    trials : int, default 5
        Trials of every experiment that draws random numbers.
    quick : bool, default False
        A tenth of the iterations and a smaller study of networks.
    report_progress : callable
        Is called with the name of each piece of work; does nothing by default.

    Attributes
    ----------
    missing : dict
        Data sets that are left out, and why.
    """

    out: Path = Path("results")
    data_dir: Path | None = None
    nodes: int = 10
    trials: int = 5
    quick: bool = False
    report_progress: Callable[[str], object] = bool
    missing: dict[str, str] = field(default_factory=dict)

    @cached_property
    def sets(self) -> dict[str, Any]:
        """The data sets on this machine; ``missing`` says how to get the others."""
        from gadget_svm.data import DataFileError, load_dataset
        from gadget_svm.data.catalog import ENTRIES
        from gadget_svm.data.datasets import find_dataset

        found = {}
        for name in (*SETS, "gisette"):
            folder, fetch = find_dataset(name, self.data_dir), f"`gadget data fetch {name}` gets it"
            if folder is None:
                self.missing[name] = f"not found; {fetch}, from {ENTRIES[name].page}"
            elif self.data_dir and not folder.resolve().is_relative_to(self.data_dir.resolve()):
                self.missing[name] = f"not in {self.data_dir}, but in {folder}: leave out --data to use it"
            else:
                try:
                    found[name] = load_dataset(name, data_dir=self.data_dir, download=False)
                except DataFileError as error:
                    self.missing[name] = str(error)
                else:
                    if (rows := found[name].X.shape[0]) < LEAST_ROWS:
                        self.missing[name] = f"only a sample of {rows} rows is here; {fetch}"
                        del found[name]
        return found

    def label(self, name: str) -> str:
        """Return the name of a data set in tables and figures. A subset of the paper's data is marked."""
        return f"{name} (subset)" if "subset" in self.sets[name].note else name

    def lam(self, name: str) -> float:
        """Return the paper's lambda, or our own for Gisette."""
        return float(self.sets[name].lam or GISETTE_LAMBDA)

    def budget(self, name: str) -> Budget:
        """Return how much work a method may do."""
        iterations = FEWER_ITERATIONS.get(name, 10_000)
        return Budget(iterations // 10, 50, 2, 0.15) if self.quick else Budget(iterations)

    # Results: computed, or read from the store

    def steps(self, parts: Sequence[str]) -> Iterator[Callable[[], Result]]:
        """Yield every piece of work that the parts need, once."""
        methods = dict.fromkeys(method for part in parts for method in METHODS_OF[part])
        for name in self.sets:
            yield from (partial(self.result, name, method, i) for method in methods for i in self._trials(method))
        if "network" in parts:
            yield from (partial(self._network, setup, i) for setup, each in self._studied.items() for i in each)

    def _trials(self, method: str) -> range:
        return range(1 if method in ONCE else self.trials)

    def results(self, name: str, method: str) -> list[Result]:
        """Return the records of all trials of a method."""
        return [self.result(name, method, trial) for trial in self._trials(method)]

    def result(self, name: str, method: str, trial: int = 0) -> Result:
        """Return the record of one trial of a method: stored, or computed now."""
        budget = self.budget(name)
        return self._stored(
            name, method, f"{name}, {method}, trial {trial + 1}",
            lambda: METHODS[method](Trial(self.sets[name], self.lam(name), self.nodes, trial), budget),
            nodes=self.nodes, trial=trial, budget=asdict(budget),
        )  # fmt: skip

    def _network(self, setup: Setup, trial: int) -> Result:
        name = self._study_set
        label = (
            f"network: {setup.study}, {setup.topology}, {setup.nodes} nodes, {setup.gossip}, {setup.level:g}, "
            f"trial {trial + 1}"
        )
        return self._stored(
            name, "network", label, lambda: run_setup(setup, self.sets[name], self.lam(name), trial),
            trial=trial, **asdict(setup),
        )  # fmt: skip

    def _stored(self, name: str, method: str, label: str, compute: Callable[[], Result], **key: Any) -> Result:
        """Return a result, stored or computed now. Its key includes the rows, the code and this machine."""

        def work() -> Result:
            self.report_progress(label)
            return compute()

        fixed = {"rows": self._fingerprints[name], "lam": self.lam(name), "code": code_digest(), "machine": machine()}
        return stored(self.out / "cells", {"method": method, "data": name, **fixed, **key}, work)

    @cached_property
    def _fingerprints(self) -> dict[str, str]:
        return {name: fingerprint(data) for name, data in self.sets.items()}

    # Rows of the tables

    def rows(self, part: str) -> list[Row]:
        """Return the rows of a part of the evaluation."""
        if part == "network":
            return self._network_rows()
        assemble = {"table1": self._table1, "table2": self._table2, "table3": self._table3, "table4": self._table4}
        return [row for name in self.sets for row in assemble[part](name)]

    def _table1(self, name: str) -> list[Row]:
        """Describe the data set, as loaded."""
        d = self.sets[name]
        return [
            {"dataset": self.label(name), "train": d.X.shape[0], "test": d.X_test.shape[0], "features": d.X.shape[1],
             "density_percent": 100 * d.X.nnz / (d.X.shape[0] * d.X.shape[1]), "majority": majority_percent(d),
             "lam": self.lam(name), "note": d.note}
        ]  # fmt: skip

    def _table2(self, name: str) -> list[Row]:
        """Compare GADGET in both readings with centralised Pegasos; "wins" is the paper's lexicographic comparison."""
        rows = {line.label: self._row(name, line, "table2") for line in LINES["table2"]}
        for label, row in rows.items():
            row["promise"] = self._promise(name, row)
            for column, rival in (("wins", "pegasos"), ("wins_equal", "pegasos (as many examples)")):
                row[column] = better(row, rows[rival]) if label in READINGS else None
        return list(rows.values())

    def _promise(self, name: str, row: Row) -> float | None:
        """Return how far above the optimum a method promises to end: by its epsilon, or by Pegasos' theorem."""
        if row["method"].startswith("svm-perf"):
            return float(row["epsilon"])
        if not row["method"].startswith("pegasos"):
            return None
        X, lam, T = self.sets[name].X, self.lam(name), int(row["iterations_mean"])
        longest = math.sqrt(float(X.multiply(X).sum(axis=1).max()))
        return corrected_bound(longest + math.sqrt(lam), lam, T, np.zeros(T))

    def _table3(self, name: str) -> list[Row]:
        """Compare GADGET with methods that train on each node's shard alone, and with others on the same network."""
        rows = []
        for line in LINES["table3"]:
            results = self.results(name, line.method)
            row = self._row(name, line, "table3")
            worst = max(max(result["objective"]) for result in results)
            row["worst_gap_percent"] = 100 * (worst / row["optimum"] - 1)
            for column, key in (("promise_percent", "promise"), ("proven_percent", "gap")):
                row[column] = 100 * max(result[key] for result in results) if key in results[0] else None
            rows.append(row)
        return rows

    def _row(self, name: str, line: Line, table: str) -> Row:
        """Return a line of Table 2 or 3, and how far its objective is above the certified optimum, in per cent."""
        row, optimum = self._summary(name, line, table), self.result(name, "optimum")["bound"]
        return row | {"optimum": optimum, "gap_percent": 100 * (row["objective_mean"] / optimum - 1)}

    def _summary(self, name: str, line: Line, table: str) -> Row:
        """Return a line of a table: our figures, the paper's, and the share of the majority class."""
        ours = summarise(self.results(name, line.method), line.last)
        paper = PUBLISHED.get((table, name, line.published), Figure())
        printed = {f"paper_{key}": value for key, value in paper._asdict().items()}
        return {"dataset": self.label(name), "method": line.label, **ours, **printed,
                "majority": majority_percent(self.sets[name])}  # fmt: skip

    def _table4(self, name: str) -> list[Row]:
        """Add the time to load (every node reads its own file, the centre all rows) and the paper's speed-up factor."""
        load = self.result(name, "loading")
        mine, central = (self._summary(name, line, "table4") for line in LINES["table4"])
        for row, place in ((mine, "nodes"), (central, "central")):
            row |= {"load_seconds": load[place], "total_seconds": load[place] + row["seconds_mean"]}
        factor = mine["total_seconds"] / central["total_seconds"]
        return [
            mine | {"speedup": factor, "paper_speedup": SPEEDUP.get(name)},
            central | {"speedup": None, "paper_speedup": None},
        ]

    def _network_rows(self) -> list[Row]:
        """Study networks on Adult if it is on this machine, else on the first data set found."""
        name = self._study_set
        fixed = {"dataset": self.label(name), "majority": majority_percent(self.sets[name])}
        trials = self._studied.items()
        return [fixed | study_row(setup, [self._network(setup, i) for i in each]) for setup, each in trials]

    @property
    def _study_set(self) -> str:
        return "adult" if "adult" in self.sets else next(iter(self.sets))

    @property
    def _studied(self) -> dict[Setup, range]:
        """The networks that are studied, and the trials of each."""
        return {setup: range(trials_of(setup, self.trials)) for setup in setups(self.quick, self.nodes)}
