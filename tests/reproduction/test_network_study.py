"""The study of networks: which networks and faults, and a row for each."""

import pytest

from gadget_svm.reproduction.network_study import Setup, _faults, run_setup, setups, study_row, trials_of
from gadget_svm.reproduction.tables import spread
from gadget_svm.topologies import build

LAM = 1e-2


def test_crashed_nodes_are_not_evaluated(cancer):
    crashed, whole = (run_setup(Setup("crash", level=level, iterations=200), cancer, LAM) for level in (3, 0))
    assert crashed["messages"] < whole["messages"]
    assert len(crashed["accuracies"]) == 7
    assert min(crashed["accuracies"]) > 80


def test_lost_messages_hurt_plain_push_sum_only(cancer):
    push_sum, running_sum = (
        run_setup(Setup("loss", gossip=gossip, level=30, iterations=2000), cancer, LAM)
        for gossip in ("push-sum", "running-sum")
    )
    assert running_sum["objective"] < push_sum["objective"]


def test_row_is_the_mean_of_its_trials():
    def record(*accuracies):
        return {"accuracies": accuracies, "objective": 1.0, "disagreement": 0.1 * len(accuracies), "messages": 5,
                "bytes": 7, "spectral_gap": 0.5}  # fmt: skip

    row = study_row(Setup("crash"), [record(80.0, 90.0), record(84.0)])
    assert (row["trials"], row["accuracy_mean"], row["accuracy_min"], row["accuracy_min_sd"]) == (2, 84.5, 82.0, 2.0)
    assert row["accuracy_sd"] == spread([[80.0, 90.0], [84.0]])
    assert row["disagreement"] == pytest.approx(0.15)
    assert study_row(Setup("crash"), [record(80.0)])["accuracy_min_sd"] is None, "one trial has no deviation"


@pytest.mark.parametrize("nodes", [2, 10, 33])
def test_study_has_the_requested_number_of_nodes(nodes):
    """And graphs that can be made of so many, and crashes that leave some."""
    chosen = list(setups(nodes=nodes))
    assert {s.study for s in chosen} == {"topology", "size", "loss", "crash"}
    assert {s.nodes for s in chosen if s.study in ("loss", "crash")} == {nodes}
    (shared,) = {s.nodes for s in chosen if s.study == "topology"}
    assert nodes <= shared < max(5, 2 * nodes)
    for setup in chosen:
        if setup.study == "topology":
            assert build(setup.topology, setup.nodes, seed=0).n == shared
        if setup.study == "crash" and setup.level > 0:
            crashed = _faults(setup)["crash"]["nodes"]
            assert len(set(crashed)) == setup.level < nodes
            assert max(crashed) < nodes


def test_every_size_gets_at_least_three_trials():
    assert [trials_of(Setup("size", nodes=nodes), 5) for nodes in (100, 300, 1000)] == [5, 3, 3]
    assert trials_of(Setup("size", nodes=1000), 1) == 1, "fewer only if fewer are asked for"
