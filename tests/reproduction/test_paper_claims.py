"""Verdicts follow the rows: other rows, other verdicts."""

import pytest

from gadget_svm.reproduction.claims import discussion
from gadget_svm.reproduction.tables import PERSISTENT, READINGS


def line_of(claim, rows):
    """The claim's line; of both readings, that of persistent mass."""
    return [line for line in discussion(rows).splitlines() if line.startswith(f"- **{claim}")][-1]


def changed(rows, table, method, **values):
    for row in rows[table]:
        if row["method"] == method:
            row |= values
    return rows


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(("accuracy", "verdict"), [(99.0, "holds."), (1.0, "does not hold.")])
def test_each_reading_has_a_verdict(rows, reading, accuracy, verdict):
    claim = f"GADGET reaches the accuracy that the paper prints for it {reading.removeprefix('gadget ')}"
    assert verdict in line_of(claim, changed(rows, "table2", reading, accuracy_mean=accuracy))


VERDICTS = {  # a claim's first words, and a change of the rows that turns its verdict
    "Averaged GADGET": ("table2", PERSISTENT, "accuracy_mean", 1.0),
    "The conjecture": ("table2", PERSISTENT, "wins", False),
    '"The performance of the GADGET': ("table2", PERSISTENT, "accuracy_mean", 1.0),
    '"The training time': ("table2", "pegasos", "seconds_mean", 1e9),
    '"GADGET SVM has': ("table3", "svm-sgd", "accuracy_mean", 200.0),
    '"SVM SGD also': ("table3", "svm-sgd", "seconds_mean", 1e9),
    '"SVM-Perf was': ("table3", "svm-perf", "seconds_mean", 0.0),
    "SVM-Perf on all": ("table2", "svm-perf (all rows)", "objective_mean", 1e3),
    "Pegasos is within": ("table2", "pegasos", "promise", -1e9),
    "MoM-DSVM ends within": ("table3", "mom-dsvm", "worst_gap_percent", 50.0),
    "MoM-DSVM broadcasts": ("table3", "mom-dsvm", "messages", 0),
    "With loading": ("table4", PERSISTENT, "speedup", 1.5),
}


@pytest.mark.parametrize("claim", VERDICTS)
def test_every_verdict_can_fail(rows, claim):
    table, method, column, value = VERDICTS[claim]
    assert "does not hold" in line_of(claim, changed(rows, table, method, **{column: value}))


@pytest.mark.parametrize(("proven", "verdict"), [(0.5, "holds."), (1.5, "does not hold.")])
def test_unproven_promise_does_not_hold(rows, proven, verdict):
    """A promise holds if its own proof and the certified optimum both say so."""
    changed(rows, "table3", "mom-dsvm", proven_percent=proven, worst_gap_percent=0.4)
    assert verdict in line_of("MoM-DSVM ends within", rows)


def test_accuracies_of_the_majority_class_are_listed(rows):
    share = rows["table3"][0]["majority"]
    changed(rows, "table3", "svm-perf", paper_accuracy=share)
    changed(rows, "table2", "authors' program", accuracy_whole_mean=share)
    listed = line_of("Accuracies that equal", rows)
    assert "svm-perf in the paper" in listed
    assert "authors' program on all test rows" in listed
