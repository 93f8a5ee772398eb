"""`gadget train`: what it prints and writes, and what its options mean."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from gadget_svm import GadgetSVC, load_model
from gadget_svm.cli.app import app
from gadget_svm.cli.output import node_rows
from gadget_svm.cli.progress import show_progress
from gadget_svm.cli.train import TrainRequest
from gadget_svm.cli.train_data import divide
from gadget_svm.cli.train_model import engine_options_of, make_algorithm, stopping_of, wants_intercept
from gadget_svm.faults import make_faults
from support.cli_kit import QUICK, gadget, table_of


def test_foreign_output_goes_to_stderr(train_file, monkeypatch):
    """Ray does, of actors that it has lost."""
    real = GadgetSVC.fit

    def chatty(*args, **options):
        print("(raylet) a worker died")
        return real(*args, **options)

    monkeypatch.setattr(GadgetSVC, "fit", chatty)
    result = gadget("train", train_file, *QUICK, "--json")
    assert json.loads(result.stdout)["events"] == []
    assert "a worker died" in result.stderr


def test_json(trained):
    result, _ = trained
    run = json.loads(result.stdout)
    assert [node["node"] for node in run["nodes"]] == [0, 1, 2, 3]
    assert sum(node["rows"] for node in run["nodes"]) == run["dataset"]["rows"] == 120
    assert run["history"][-1]["iteration"] == run["n_iter"]
    assert run["messages"] == 4 * run["n_iter"]
    assert {"dataset", "parameters", "average", "converged", "stopped_by", "bytes", "seconds"} <= set(run)
    assert run["parameters"]["settings"]["solver"] == "pegasos"
    assert "iteration" in result.stderr, "progress belongs on stderr"


def test_scores_match_estimator(trained, test_file):
    from gadget_svm.data import read_table

    result, out = trained
    run, model = json.loads(result.stdout), load_model(out / "model.safetensors")
    X, y = read_table(test_file)
    for node in run["nodes"]:
        assert node["test_accuracy"] == pytest.approx(model.node(node["node"]).score(X, y), abs=1e-12)
    assert run["average"]["test_accuracy"] == pytest.approx(model.score(X, y), abs=1e-12)
    assert run["history"][-1]["test_error"] == pytest.approx(1 - model.score(X, y), abs=1e-12)
    assert run["average"]["train_objective"] == pytest.approx(run["history"][-1]["objective"], rel=1e-12)


def test_out(trained):
    result, out = trained
    run = json.loads(result.stdout)
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    summary = json.loads((out / "summary.json").read_text())
    assert history == run.pop("history")
    assert summary == run
    assert sorted(path.name for path in out.iterdir()) == ["history.jsonl", "model.safetensors", "summary.json"]


def test_same_model_as_estimator(trained, train_file):
    from gadget_svm.data import read_table

    X, y = read_table(train_file)
    model = GadgetSVC(n_nodes=4, lam=0.01, algorithm="gadget", max_iter=200, random_state=0)
    with pytest.warns(match="stopped at max_iter") if not json.loads(trained[0].stdout)["converged"] else _nothing():
        model.fit(X, y)
    assert np.array_equal(load_model(trained[1] / "model.safetensors").node_coef_, model.node_coef_)


def _nothing():
    from contextlib import nullcontext

    return nullcontext()


def test_table(train_file):
    result = gadget("train", train_file, *QUICK, "--tol", "1e-9", "--quiet")
    assert result.exit_code == 0
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["0", "1", "2", "3", "average"]
    assert "Stopped at --max-iter 200, not converged" in result.stdout
    assert "No test rows" in result.stdout
    assert "ConvergenceWarning" not in result.output
    assert "\x1b" not in result.output, "no escape codes where there is no terminal"
    assert result.stderr == ""


def test_table_of_many_nodes(train_file):
    result = gadget("train", train_file, "--nodes", 30, "--max-iter", 20, "--quiet")
    assert "min of 30" in result.stdout
    assert "max of 30" in result.stdout


@pytest.fixture
def lost_nodes(monkeypatch):
    """Trainings that lose nodes 1 and 2 at iteration 40, as a cluster would tell."""
    real = GadgetSVC.fit

    def losing(model, *args, **options):
        real(model, *args, **options)
        event = {"event": "lost", "actor": 1, "nodes": [1, 2], "iteration": 40, "why": "no answer"}
        model.history_[-1]["events"] = [event]
        return model

    monkeypatch.setattr(GadgetSVC, "fit", losing)


def test_lost_nodes_in_table(lost_nodes, train_file, test_file):  # noqa: ARG001
    result = gadget("train", train_file, "--test", test_file, *QUICK, "--quiet")
    assert result.exit_code == 0, result.stderr
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if line[0] == "│"]
    names = ["0", "1, lost at iteration 40", "2, lost at iteration 40", "3", "average"]
    assert [row[:2] for row in rows] == [[name, "60" if name == "average" else "30"] for name in names]
    assert [row[2:].count("-") for row in rows] == [0, 3, 3, 0, 0]
    assert "was lost at iteration 40 (no answer), not back." in result.stdout


def test_lost_nodes_in_json(lost_nodes, train_file):  # noqa: ARG001
    run = json.loads(gadget("train", train_file, *QUICK, "--json").stdout)
    assert [node.get("lost") for node in run["nodes"]] == [None, 40, 40, None]
    assert (run["average"]["rows"], run["dataset"]["rows"]) == (60, 120)


def test_no_lost_nodes_in_json(trained):
    run = json.loads(trained[0].stdout)
    assert not any("lost" in node for node in run["nodes"])
    assert "rows" not in run["average"]


def test_lost_nodes_among_many(lost_nodes, train_file):  # noqa: ARG001
    result = gadget("train", train_file, "--nodes", 30, "--max-iter", 20, "--quiet")
    assert "min of 28 not lost of 30" in result.stdout


def test_node_rows_leave_lost_nodes_out():
    nodes = [{"node": i, "rows": 4, "train_accuracy": 0.9, "test_accuracy": None} for i in range(25)]
    nodes[3] |= {"train_accuracy": 0.1, "lost": 7}
    (least, row), *_ = node_rows(nodes, 100)
    assert (least, row["train_accuracy"], row["test_accuracy"]) == ("min of 24 evaluated not lost of 100", 0.9, None)
    assert node_rows([{**node, "lost": 7} for node in nodes], 100) == []


def test_set_beside_auto():
    algorithm = make_algorithm(TrainRequest(["x"], settings=["theta=0.9"]))
    assert (algorithm.theta, algorithm.neighbours) == (0.9, "all")


@pytest.mark.parametrize("nodes", [["--nodes", 8], []], ids=["8 nodes", "default"])
def test_robust_mixing_against_a_lying_node(train_file, nodes):
    """Six edges a node allow two liars, also where the number of nodes is known only after reading the rows."""
    options = ["--algorithm", "gadget", "--set", "robust=clip", "--set", "liars=2", "--topology", "random-regular:6"]
    result = gadget("train", train_file, *nodes, *options, "--fault", "sign-flip=3", "--max-iter", 30, "--json")
    run = json.loads(result.stdout)
    assert run["gossip"] == "robust-mixing"
    assert run["parameters"]["settings"]["liars"] == 2
    (hint,) = run["hints"]
    assert "--rounds 5 --local-steps 1" in hint
    assert "--gossip" not in hint  # robust mixing takes its place


def test_report(train_file, tmp_path):
    result = gadget("train", train_file, *QUICK, "--report", tmp_path / "new" / "r.html")
    assert result.exit_code == 0, result.stderr
    assert "train.svm" in (tmp_path / "new" / "r.html").read_text(encoding="utf-8")


def test_running_sums_are_explained(train_file):
    def said(*options):
        return "running sums" in gadget("train", train_file, *QUICK, *options).stdout

    assert said("--drop", "0.1")
    assert not said("--fault", "delay=2")
    assert not said("--drop", "0.1", "--gossip", "push-sum")


def test_short_options(train_file, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    long = [
        "--nodes",
        4,
        "--lam",
        0.01,
        "--topology",
        "ring",
        "--algorithm",
        "pdmm",
        "--jobs",
        1,
        "--out",
        one,
        "--quiet",
    ]
    short = ["-n", 4, "--lambda", 0.01, "-t", "ring", "-a", "pdmm", "--threads", 1, "-o", two, "-q"]
    assert [gadget("train", train_file, *options).exit_code for options in (long, short)] == [0, 0]
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


def test_ray_options():
    request = TrainRequest(["x"], engine="ray", address="auto", actors=3, checkpoint_dir="ck", resume="auto")
    assert engine_options_of(request) == {"address": "auto", "actors": 3, "checkpoint_dir": "ck", "resume": "auto"}
    assert engine_options_of(TrainRequest(["x"], engine="ray", resume="true"))["resume"] is True


def test_guessed_label_is_named(tmp_path, caplog):
    """In a table of numbers without a header it could be any column."""
    rows = [f"{i % 2},{i},{(i + 1) % 2}\n" for i in range(20)]
    plain, headed, out = tmp_path / "plain.csv", tmp_path / "headed.csv", tmp_path / "out"
    plain.write_text("".join(rows))
    headed.write_text("".join(["a,b,c\n", *rows]))
    said = "plain.csv has no header: its last column, number 2 counted from 0, is taken as the label"

    def noted(*command):
        caplog.clear()
        result = gadget(*command)
        assert result.exit_code == 0, result.stderr
        return [record.getMessage() for record in caplog.records if record.name == "gadget_svm.data"]

    quick = ["--nodes", 2, "--max-iter", 5, "--out", out]
    (note,) = noted("train", plain, "--test", plain, *quick)
    assert said in note
    assert "--label" in note
    assert len(noted("train", plain, tmp_path / "headed.csv", *quick[2:])) == 1
    assert noted("train", plain, *quick, "--quiet") == []
    assert noted("train", headed, *quick) == []
    assert noted("train", plain, *quick, "--label", 2) == []
    assert said in noted("predict", out, plain)[0]
    (tmp_path / "unlabelled.csv").write_text("0,1\n1,2\n")
    assert noted("predict", out, tmp_path / "unlabelled.csv") == []


def test_format_and_stdin(tmp_path):
    data, out = table_of(tmp_path / "x.data"), tmp_path / "out"
    options = ["--format", "csv", "--label", "0"]
    from_file = gadget("train", data, *options, "--nodes", 2, "--max-iter", 20, "--out", out)
    assert from_file.exit_code == 0, from_file.stderr
    text = data.read_text()
    command = ["train", "-", *options, "--nodes", "2", "--max-iter", "20", "--out", str(tmp_path / "piped")]
    piped = CliRunner().invoke(app, command, input=text)
    assert piped.exit_code == 0, piped.stderr
    same = [load_model(folder / "model.safetensors").coef_ for folder in (out, tmp_path / "piped")]
    assert np.array_equal(*same)
    assert "reading stdin\nstdin: 60 rows" in piped.stderr
    assert json.loads((tmp_path / "piped" / "summary.json").read_text())["dataset"]["note"] == "read from stdin"
    predicted = CliRunner().invoke(app, ["predict", str(out), "-", *options], input=text)
    assert "of 60 rows" in predicted.stdout, predicted.output


def test_algorithm_options():
    request = TrainRequest(
        ["x"], algorithm="gadget", gossip="pairwise", gossip_rounds="3", local_steps=2, average=False, project=False
    )
    algorithm = make_algorithm(request)
    assert (algorithm.gossip, algorithm.gossip_rounds, algorithm.local_steps) == ("pairwise", 3, 2)
    assert (algorithm.average, algorithm.project, algorithm.solver) == (False, False, "pegasos")
    assert (
        make_algorithm(TrainRequest(["x"], gossip_rounds="mix", settings=["mass=restarted", "gamma=1e-3"])).gamma
        == 0.001
    )


def test_defaults():
    assert not wants_intercept(TrainRequest(["adult"]))
    assert wants_intercept(TrainRequest(["digits"]))
    assert wants_intercept(TrainRequest(["some/file.svm"]))
    assert wants_intercept(TrainRequest(["adult"], fit_intercept=True))
    assert stopping_of(TrainRequest(["x"])) == "auto"
    assert stopping_of(TrainRequest(["x"], stopping="none")) is None


def test_partitions_and_faults():
    y = np.repeat([0, 1], 30)
    assert divide(TrainRequest(["x"]), y) is None
    assert np.bincount(divide(TrainRequest(["x"], partition="sizes:1,2,3"), y)).tolist() == [10, 20, 30]
    assert set(y[divide(TrainRequest(["x"], partition="sorted", n_nodes=2), y) == 0]) == {0}
    assert divide(TrainRequest(["x"], partition="label-skew:0.1", n_nodes=5), y).max() == 4
    request = TrainRequest(["x"], drop=0.2, faults=['crash={"nodes": [3], "at": 100}'])
    faults = make_faults([fault for _, fault in request.typed_faults])
    assert (faults[0].p, faults[1].at, list(faults[1].nodes)) == (0.2, 100, [3])


def test_progress():
    from io import StringIO

    from rich.console import Console

    records = [
        {"iteration": t, "objective": 1 / t, "disagreement": 0.1, "seconds": t / 100} for t in (1, 2, 3, 4, 5, 64)
    ]
    plain, fancy = StringIO(), StringIO()
    for console in (Console(file=plain), Console(file=fancy, force_terminal=True, width=120)):
        with show_progress(console, 100, None) as show:
            for record in records:
                show(record)
    assert [line.split()[1] for line in plain.getvalue().splitlines()] == ["1,", "4,", "64,"]
    assert "\x1b[" in fancy.getvalue()
    assert "iteration 64" in fancy.getvalue()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--algorithm", "pdmm"], "gap"),
        (["--algorithm", "mom-dsvm"], "gap"),
        (["--algorithm", "gadget"], "average"),
        (["--algorithm", "gadget", "--last"], "objective"),
        ([], "gap"),
        (["--topology", "exponential"], "average"),
        (["--local-steps", "5"], "average"),
    ],
)
def test_default_stopping(train_file, tmp_path, options, rule):
    """auto is PDMM where it applies, and the settings of GADGET mean GADGET."""
    result = gadget("train", train_file, "--nodes", 5, "--lam", "0.01", "--max-iter", 40, "--out", tmp_path, *options)
    assert result.exit_code == 0, result.stderr
    assert json.loads((tmp_path / "summary.json").read_text())["parameters"]["stopping"] == rule


def certified(path, *more):
    return gadget("train", path, "--nodes", 5, "--lam", "0.01", "--algorithm", "pdmm", "--stopping", "gap", *more)


def test_certificate(train_file, tmp_path):
    out, page = tmp_path / "out", tmp_path / "r.html"
    result = certified(train_file, "--tol", "0.02", "--out", out, "--report", page)
    assert result.exit_code == 0, result.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert 0 < summary["gap_bound"] <= summary["parameters"]["tol"] == 0.02
    said = re.search(r"certified: at most ([\d.]+) % above the optimum\.", result.stdout)
    assert summary["gap_bound"] <= float(said[1]) / 100 <= 1.1 * summary["gap_bound"]  # rounded up, never down
    assert load_model(out / "model.safetensors").gap_bound_ == summary["gap_bound"]
    assert said[0] in page.read_text(encoding="utf-8")
    assert f"<b>{said[1]} %</b><span>above the optimum at most, certified" in page.read_text(encoding="utf-8")
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert history[-1]["bound"] == summary["gap_bound"]
    assert history[0]["bound"] is None


def test_no_certificate(train_file):
    result = certified(train_file, "--max-iter", 30, "--topology", "complete", "--fault", "partition=1", "--quiet")
    assert result.exit_code == 0, result.stderr
    assert "not converged: the rule 'gap' got no certificate, as" in result.stdout
    assert "cut off from the others, and waits for 0.01" in result.stdout
    far = certified(train_file, "--max-iter", 30, "--tol", "1e-9", "--quiet")
    assert "the rule 'gap' last saw" in far.stdout


def test_certificate_without_crashed_nodes(train_file):
    gone = """crash={"nodes": [1, 2], "at": 5}"""
    result = certified(train_file, "--tol", "0.05", "--topology", "complete", "--fault", gone, "--quiet")
    assert "above the optimum, counting the rows of 3 of 5 nodes, not of node 1, node 2." in result.stdout


def test_separate_seeds(train_file):
    def run(*options):
        return json.loads(gadget("train", train_file, *QUICK, "--json", "--quiet", *options).stdout)

    one, graph, division = (
        run("--seed", 1),
        run("--seed", 1, "--topology-seed", 2),
        run("--seed", 1, "--partition-seed", 2),
    )
    assert (graph["parameters"]["topology_seed"], division["parameters"]["partition_seed"]) == (2, 2)
    same = run("--seed", 1, "--topology-seed", 1, "--partition-seed", 1)
    assert same["average"] == one["average"] != division["average"]
    refused = gadget("train", train_file, "--topology-seed", -1)
    assert (refused.exit_code, "--topology-seed -1: " in refused.stderr) == (2, True)
