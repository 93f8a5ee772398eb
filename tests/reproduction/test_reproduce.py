"""The plan of the reproduction, and the rows of its tables."""

import pytest

from gadget_svm.reproduction import reproduce
from gadget_svm.reproduction.network_study import Setup
from gadget_svm.reproduction.reproduce import Reproduction
from gadget_svm.reproduction.tables import AS_PRINTED, PERSISTENT


def by_method(table):
    return {row["method"]: row for row in table}


def test_interrupted_run_continues(small_run, tmp_path):
    """Finished results are kept; the same command computes only the rest."""
    run, done = small_run(tmp_path), []
    steps = list(run.steps(("table4",)))
    for step in steps[:3]:
        step()
    run.report_progress = done.append
    for step in steps:
        step()
    assert len(done) == len(steps) - 3 == 2


def test_steps_leave_nothing_to_compute(written):
    """The steps are all the work: `write_all` after them computes nothing."""
    done = []
    written.run.report_progress = done.append
    for step in written.run.steps(("table1", "table2", "table3", "table4", "figures")):
        step()
    assert done == []


def test_table2_has_both_readings(written):
    rows = by_method(written.rows["table2"])
    assert {AS_PRINTED, PERSISTENT, "pegasos", "authors' program", "liblinear"} <= set(rows)
    assert rows[AS_PRINTED]["messages"] > 10 * rows[PERSISTENT]["messages"]
    assert {rows[reading]["paper_accuracy"] for reading in (AS_PRINTED, PERSISTENT)} == {77.04}
    assert all(isinstance(rows[reading]["wins"], bool) for reading in (AS_PRINTED, PERSISTENT))


def test_pegasos_also_gets_as_many_examples(written):
    rows = by_method(written.rows["table2"])
    assert rows["pegasos (as many examples)"]["iterations_mean"] == 4 * rows["pegasos"]["iterations_mean"]


def test_table3_states_promise_and_proof(written):
    """Of the worst node in the worst trial; others promise nothing."""
    rows, results = by_method(written.rows["table3"]), written.run.results("adult", "mom-dsvm")
    admm = rows["mom-dsvm"]
    assert admm["promise_percent"] == 1.0
    assert admm["proven_percent"] == 100 * max(result["gap"] for result in results)
    assert admm["worst_gap_percent"] >= admm["gap_percent"]
    assert rows[PERSISTENT]["promise_percent"] is rows[PERSISTENT]["proven_percent"] is None


def test_speedup_is_distributed_over_centralised_time(written):
    """Appendix B: "Time taken by the distributed algorithm ... / time taken by the centralized algorithm"."""
    mine, central = written.rows["table4"]
    assert mine["speedup"] == pytest.approx(mine["total_seconds"] / central["total_seconds"])
    assert mine["total_seconds"] == pytest.approx(mine["load_seconds"] + mine["seconds_mean"])


def test_network_study_uses_nodes_and_trials(small_run, tmp_path, monkeypatch):
    asked, run = [], small_run(tmp_path)

    def few(quick, nodes):
        asked.append((quick, nodes))
        return [Setup("loss", "ring", nodes, iterations=50)]

    monkeypatch.setattr(reproduce, "setups", few)
    (row,) = run.rows("network")
    assert (row["nodes"], row["trials"]) == (4, 2)
    assert set(asked) == {(True, 4)}
    assert len(list(run.steps(("network",)))) == 2


@pytest.mark.parametrize("given", [False, True])
def test_only_the_given_folder_is_searched(tmp_path, monkeypatch, given):
    """With --data, a data set in another known folder is left out, and the page says so."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
    for part in ("a9a", "a9a.t"):
        (other / part).write_text("+1 1:1\n-1 2:1\n" * 600)
    monkeypatch.setenv("GADGET_DATA", str(other))
    monkeypatch.chdir(mine)
    run = Reproduction(tmp_path, mine if given else None)
    assert ("adult" in run.sets) is not given
    assert ("adult" in run.missing and str(other) in run.missing["adult"]) is given
