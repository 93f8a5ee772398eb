"""`gadget study new --epsilon`: one plan for all sites; and what private studies refuse."""

import pytest
from typer.testing import CliRunner

pytest.importorskip("pydantic")
pytest.importorskip("dp_accounting")

from gadget_svm.cli.app import app
from gadget_svm.peers.node import check_until
from gadget_svm.privacy import DifferentialPrivacy
from gadget_svm.study.study_file import load_study

DATA = ["--features", 9, "--class", 1, "--class", 2, "--class", 3, "--lam", 0.01]
SITES = ["--site", "a", "--site", "b", "--site", "c"]


def new(*words):
    return CliRunner().invoke(app, ["study", "new", "s", *map(str, words)], prog_name="gadget")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_study_has_the_plan_of_its_public_numbers():
    found = new(*DATA, *SITES, "--epsilon", 2, "--clip", 1.5, "--rows-expected", 6000)
    assert found.exit_code == 0, found.output
    study, plan = load_study("study.toml"), DifferentialPrivacy(2.0, 1e-6, 1.5).plan(3, 6000, 3 * 10)
    assert (study.algorithm, study.scaling, study.epsilon, study.delta) == ("private", "none", 2.0, 1e-6)
    assert (study.clip, study.rounds) == (1.5, plan.rounds)
    assert study.step_size == pytest.approx(plan.step_size, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*DATA, *SITES, "--epsilon", 2], "--epsilon needs --rows-expected"),
        ([*DATA, *SITES, "--rows-expected", 100], "give a budget with --epsilon"),
        ([*DATA, "--epsilon", 2, "--rows-expected", 100], "give --site or --min-sites"),
        (
            [*DATA, *SITES, "--epsilon", 2, "--rows-expected", 100, "--algorithm", "pdmm"],
            "needs --algorithm private",
        ),
        ([*DATA, *SITES, "--epsilon", -1, "--rows-expected", 100], "epsilon must be a positive number"),
        (
            [*DATA, *SITES, "--algorithm", "private"],
            "--epsilon must be set in a private study: 'gadget study new --epsilon 1",
        ),
        ([*DATA, *SITES, "--clip", 2], "--clip must be left out, or the algorithm must be private"),
        (
            [*DATA, *SITES, "--epsilon", 2, "--rows-expected", 100, "--scaling", "max-abs"],
            "--scaling must be none in a private study",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_with_the_fix(words, told):
    found = new(*words)
    assert found.exit_code == 2
    assert told in " ".join(found.output.split())


def test_each_kind_of_study_ends_in_its_own_way():
    new(*DATA, *SITES, "--epsilon", 2, "--rows-expected", 6000)
    private = load_study("study.toml")
    new(*DATA, *SITES, "--out", "other.toml")
    pdmm = load_study("other.toml")
    with pytest.raises(ValueError, match="--until certified needs sums over rows"):
        check_until("certified", private)
    with pytest.raises(ValueError, match="--until finished is for private studies"):
        check_until("finished", pdmm)
    check_until("finished", private)
    check_until("certified", pdmm)


def test_the_status_of_a_private_peer_shows_what_is_spent():
    pytest.importorskip("google.protobuf")
    from gadget_svm.cli.peer_client import status_lines
    from gadget_svm.peers.world.scenario import load
    from gadget_svm.peers.world.world import World, node_factory

    world = World(load("private"), 0, make_node=node_factory())
    world.queue.run(12.0)
    machine = next(iter(world.machines.values()))
    found = machine.node.status(machine.now)
    told = "\n".join(status_lines({**found, "untrusted": {}}))
    assert 0 < found["privacy"]["rounds"] < 40
    assert f"private: {found['privacy']['rounds']} of 40 rounds done, epsilon " in told
    assert "of 4 spent at delta 1e-05; all studies of these rows: " in told
    assert (found["objective"], found["gap_estimate"], found["train_accuracy"]) == (None, None, None)
