"""The benchmarks' tools: tables, ratios, sweeps, bisection, runs to a gap and processes of their own."""

import csv
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import common, gaps, peers
from benchmarks.__main__ import NAMES, main
from benchmarks.common import Table, generated, publish_tables, ratio
from benchmarks.fresh import in_fresh_process
from benchmarks.paper_scale import load_rows, save_rows, zipf_rows
from benchmarks.peers import LINEAR, Best, Peer, Try, best_settings
from benchmarks.scale import rounds_to

from gadget_svm.algorithms import Pdmm


@pytest.fixture
def results(tmp_path, monkeypatch):
    """The folder of results in this test."""
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def some_table():
    table = Table(["what", "seconds", "ratio to the peer"])
    table.add("mine", 0.5, ratio(0.5, 2.0))
    table.add("peer", 2.0, ratio(2.0, 2.0))
    table.add("neither", None, ratio(None, 2.0))
    return table


@pytest.mark.parametrize("quick", [False, True])
def test_tables_and_plot_are_written(results, quick, capsys):
    pytest.importorskip("matplotlib")
    table = some_table()
    publish_tables("thing", "A thing", ["Said once."], [table], lambda figure: figure.subplots().plot([1, 2]), quick)
    folder = results / "quick" if quick else results
    text = (folder / "thing.md").read_text()
    assert "| mine | 0.5 | 0.25 |" in text
    assert "| neither |  |  |" in text
    assert "Said once." in text
    assert ("make bench-quick" in text) == quick
    assert text in capsys.readouterr().out
    assert (folder / "thing.png").stat().st_size > 1000
    with (folder / "thing.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["ratio to the peer"] for row in rows] == ["0.25", "1.0", ""]
    assert all(row["machine"] and row["date"] for row in rows)


def test_each_table_has_its_csv(results):
    first, second = some_table(), some_table()
    second.name = "more"
    publish_tables("thing", "A thing", [], [first, second])
    assert {path.name for path in results.iterdir()} == {"thing.md", "thing.csv", "thing_more.csv"}


def test_row_of_wrong_length_is_refused():
    with pytest.raises(ValueError, match="3 columns"):
        some_table().add("short", 1.0)


def test_every_benchmark_has_a_main():
    for name in NAMES:
        assert callable(importlib.import_module(f"benchmarks.{name}").main)
    for name in ("gap_time", "gap_exchanges", "paper_scale"):
        assert "ratio" in importlib.import_module(f"benchmarks.{name}").COLUMNS[-1]


def test_unknown_benchmark_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "scales"])
    with pytest.raises(SystemExit):
        main()
    assert "'scales'" in capsys.readouterr().err


def test_bisection_finds_the_first_round():
    for wanted in (1, 7, 8, 9, 100):
        assert rounds_to(lambda rounds, wanted=wanted: float(rounds < wanted), 0.5) == wanted


def test_quickest_setting_to_a_gap(monkeypatch):
    """Of two chains, one is exact too late for the wider target and the other never for the narrower."""
    tried = []

    def clocked(attempt, *_):
        tried.append(attempt)
        gap, seconds = attempt
        return np.array([gap]), seconds, seconds

    monkeypatch.setattr(peers, "clocked", clocked)
    monkeypatch.setattr(peers, "_warm_up", lambda *_: None)
    chains = [
        [Try("rough", (0.5, 1.0)), Try("fine", (1e-4, 3.0)), Try("needless", (0.0, 4.0))],
        [Try("cheap", (1e-2, 2.0)), Try("slow", (1e-2, 12.0)), Try("past patience", (0.0, 13.0))],
    ]
    peer = Peer("fake", lambda: iter(chains), "")
    best = best_settings(peer, None, np.ones(1), 1.0, lambda w: float(w[0]), (1e-2, 1e-3, 1e-9), 10.0)
    assert best == {1e-2: Best("cheap", 2.0, 2.0), 1e-3: Best("fine", 3.0, 3.0), 1e-9: Best("needless", 4.0, 4.0)}
    assert (0.0, 13.0) not in tried
    tried.clear()
    best_settings(peer, None, np.ones(1), 1.0, lambda w: float(w[0]), (1e-3,), 10.0)
    assert (0.0, 4.0) not in tried


def test_missing_peers_are_named(monkeypatch):
    monkeypatch.setattr(peers, "_imports", lambda module: False)  # noqa: ARG005
    here, lacking = peers.peers()
    assert [peer.name for peer in here] == ["LinearSVC", "SGDClassifier"]
    assert lacking == ["liblinear-official", "snapml"]


def test_run_to_a_gap(tmp_path, monkeypatch):
    monkeypatch.setattr(gaps, "CACHE", tmp_path)
    task = gaps.Task("toy", *generated(300, 20, 5), 1e-2)
    curve = gaps.watched(task, Pdmm(neighbours="all"), 1e-2, 500, 60)
    assert curve.gaps[-1] <= 1e-2 < min(curve.gaps[:-1], default=1.0)
    assert curve.first(1e-2) == len(curve.gaps) - 1
    assert curve.first(-1.0) is None
    assert curve.messages[-1] == 4 * curve.ticks[-1]  # four neighbours, all of them in every tick
    assert len(gaps.timed(task, Pdmm(neighbours="all"), 2, repeats=1)) == 2
    w, *_ = peers.clocked(next(LINEAR.chains())[-1].solve, task.X, task.y, task.lam)
    assert 0 <= task.gaps(w[None])[0] < 1e-3
    assert len(list(tmp_path.glob("*.npz"))) == 1, "the optimum is certified once"


def test_memory_of_a_fresh_process(tmp_path):
    X, y = zipf_rows(200, 2000, 10)
    save_rows(tmp_path, X, y)
    got = in_fresh_process("benchmarks.paper_scale:certify", folder=str(tmp_path), lam=0.01, seconds=30)
    assert got["nnz"] == 2000
    assert got["bound"] <= got["objective"]
    assert got["after_imports"] > 0
    assert got["used"] > 0
    with pytest.raises(RuntimeError, match="No such file"):
        in_fresh_process("benchmarks.paper_scale:certify", folder=str(tmp_path / "none"), lam=0.01, seconds=30)


@pytest.mark.parametrize(("features", "per_row"), [(2000, 30), (254, 85), (41, 40)])
def test_generated_rows_have_their_shape(tmp_path, features, per_row):
    X, y = zipf_rows(500, features, per_row)
    assert X.shape == (500, features)
    rows = X.indices.reshape(500, per_row)
    assert (np.diff(rows, axis=1) > 0).all()
    assert rows.min() >= 0
    assert rows.max() < features
    np.testing.assert_allclose(np.asarray(X.multiply(X).sum(axis=1)), 1.0)
    assert set(np.unique(y)) == {-1, 1}
    save_rows(tmp_path, X, y)
    again, labels = load_rows(str(tmp_path))
    assert (again != X).nnz == 0
    np.testing.assert_array_equal(labels, y)
