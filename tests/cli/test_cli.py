"""The command line as a user meets it: what it prints, what it writes, how it fails and how it stops."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gadget_svm import GadgetSVC, load_model, save_model
from gadget_svm.cli.app import app
from gadget_svm.cli.progress import Bar, Lines
from gadget_svm.cli.tables import shown_rows
from gadget_svm.cli.train_request import Order, engine_options, make_algorithm, share_out, stopping_for, wants_intercept
from gadget_svm.cluster.connection import ClusterError
from gadget_svm.faults import make_faults

SRC = Path(__file__).parents[2] / "src"
QUICK = ["--nodes", "4", "--max-iter", "200", "--algorithm", "gadget", "--lam", "0.01"]


def gadget(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="gadget")


def write_rows(path: Path, rows: int = 120, features: int = 6, seed: int = 0, poison: str = "") -> Path:
    """An svmlight file of two classes that a line through the origin tells apart."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features)).round(4)
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1, -1)
    lines = [f"{label} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row)) for label, row in zip(y, X, strict=True)]
    path.write_text("\n".join(lines) + "\n" + poison)
    return path


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "train.svm")


@pytest.fixture(scope="module")
def test_file(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "test.svm", rows=50, seed=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, train_file, test_file):
    """A training with every kind of output, and its folder."""
    out = tmp_path_factory.mktemp("run") / "deep" / "out"
    result = gadget("train", train_file, "--test", test_file, *QUICK, "--json", "--out", out)
    assert result.exit_code == 0, result.stderr
    return result, out


def test_what_others_print_while_nodes_learn_is_not_on_stdout(train_file, monkeypatch):
    """Ray does, of actors that it has lost."""
    real = GadgetSVC.fit_observed

    def chatty(*args, **options):
        print("(raylet) a worker died")
        return real(*args, **options)

    monkeypatch.setattr(GadgetSVC, "fit_observed", chatty)
    result = gadget("train", train_file, *QUICK, "--json")
    assert json.loads(result.stdout)["events"] == []
    assert "a worker died" in result.stderr


def test_a_cluster_that_cannot_go_on_says_so_in_a_line(train_file, monkeypatch):
    def lost(*_, **__):
        raise ClusterError("all actors are lost: see Ray's logs")

    monkeypatch.setattr(GadgetSVC, "fit_observed", lost)
    result = gadget("train", train_file, *QUICK)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "error: all actors are lost: see Ray's logs")


def test_json_is_all_there_is_on_stdout(trained):
    result, _ = trained
    run = json.loads(result.stdout)
    assert [node["node"] for node in run["nodes"]] == [0, 1, 2, 3]
    assert sum(node["rows"] for node in run["nodes"]) == run["dataset"]["rows"] == 120
    assert run["history"][-1]["iteration"] == run["n_iter"]
    assert run["messages"] == 4 * run["n_iter"]
    assert {"dataset", "parameters", "average", "converged", "stopped_by", "bytes", "seconds"} <= set(run)
    assert run["parameters"]["settings"]["solver"] == "pegasos"
    assert "iteration" in result.stderr, "progress belongs on stderr"


def test_judged_numbers_are_those_of_the_estimator(trained, test_file):
    from gadget_svm.data import read_table

    result, out = trained
    run, model = json.loads(result.stdout), load_model(out / "model.safetensors")
    X, y = read_table(test_file)
    for node in run["nodes"]:
        assert node["test_accuracy"] == pytest.approx(model.node(node["node"]).score(X, y), abs=1e-12)
    assert run["average"]["test_accuracy"] == pytest.approx(model.score(X, y), abs=1e-12)
    assert run["history"][-1]["test_error"] == pytest.approx(1 - model.score(X, y), abs=1e-12)
    assert run["average"]["train_objective"] == pytest.approx(run["history"][-1]["objective"], rel=1e-12)


def test_out_holds_model_history_and_summary(trained):
    result, out = trained
    run = json.loads(result.stdout)
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    summary = json.loads((out / "summary.json").read_text())
    assert history == run.pop("history")
    assert summary == run
    assert sorted(path.name for path in out.iterdir()) == ["history.jsonl", "model.safetensors", "summary.json"]


def test_the_command_and_the_estimator_learn_the_same(trained, train_file):
    from gadget_svm.data import read_table

    X, y = read_table(train_file)
    model = GadgetSVC(n_nodes=4, lam=0.01, algorithm="gadget", max_iter=200, random_state=0)
    with pytest.warns(match="stopped at max_iter") if not json.loads(trained[0].stdout)["converged"] else _nothing():
        model.fit(X, y)
    assert np.array_equal(load_model(trained[1] / "model.safetensors").node_coef_, model.node_coef_)


def _nothing():
    from contextlib import nullcontext

    return nullcontext()


def test_table_names_every_node_and_why_it_ended(train_file):
    result = gadget("train", train_file, *QUICK, "--tol", "1e-9", "--quiet")
    assert result.exit_code == 0
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    assert [row.split("│")[1].strip() for row in rows] == ["0", "1", "2", "3", "average"]
    assert "Stopped at --max-iter 200, not converged" in result.stdout
    assert "No test rows" in result.stdout
    assert "ConvergenceWarning" not in result.output
    assert "\x1b" not in result.output, "no escape codes where there is no terminal"
    assert result.stderr == ""


def test_many_nodes_are_shown_as_a_span(train_file):
    result = gadget("train", train_file, "--nodes", 30, "--max-iter", 20, "--quiet")
    assert "min of 30" in result.stdout
    assert "max of 30" in result.stdout


@pytest.fixture
def bereft(monkeypatch):
    """Trainings that lose nodes 1 and 2 at iteration 40, as a cluster would tell."""
    real = GadgetSVC.fit_observed

    def losing(model, *args, **options):
        real(model, *args, **options)
        event = {"event": "lost", "actor": 1, "nodes": [1, 2], "iteration": 40, "why": "no answer"}
        model.history_[-1]["events"] = [event]
        return model

    monkeypatch.setattr(GadgetSVC, "fit_observed", losing)


def test_lost_nodes_are_marked_in_the_table_and_the_average_has_the_rows_of_the_others(bereft, train_file, test_file):  # noqa: ARG001
    result = gadget("train", train_file, "--test", test_file, *QUICK, "--quiet")
    assert result.exit_code == 0, result.stderr
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.stdout.splitlines() if line[0] == "│"]
    names = ["0", "1, lost at iteration 40", "2, lost at iteration 40", "3", "average"]
    assert [row[:2] for row in rows] == [[name, "60" if name == "average" else "30"] for name in names]
    assert [row[2:].count("-") for row in rows] == [0, 3, 3, 0, 0]
    assert "was lost at iteration 40 (no answer), not back." in result.stdout


def test_json_says_which_nodes_are_lost(bereft, train_file):  # noqa: ARG001
    run = json.loads(gadget("train", train_file, *QUICK, "--json").stdout)
    assert [node.get("lost") for node in run["nodes"]] == [None, 40, 40, None]
    assert (run["average"]["rows"], run["dataset"]["rows"]) == (60, 120)


def test_json_says_nothing_of_losses_where_there_are_none(trained):
    run = json.loads(trained[0].stdout)
    assert not any("lost" in node for node in run["nodes"])
    assert "rows" not in run["average"]


def test_the_span_of_many_nodes_is_that_of_those_that_are_here(bereft, train_file):  # noqa: ARG001
    result = gadget("train", train_file, "--nodes", 30, "--max-iter", 20, "--quiet")
    assert "min of 28 not lost of 30" in result.stdout


def test_spans_leave_lost_nodes_out():
    nodes = [{"node": i, "rows": 4, "train_accuracy": 0.9, "test_accuracy": None} for i in range(25)]
    nodes[3] |= {"train_accuracy": 0.1, "lost": 7}
    (least, row), *_ = shown_rows(nodes, 100)
    assert (least, row["train_accuracy"], row["test_accuracy"]) == ("min of 24 judged not lost of 100", 0.9, None)
    assert shown_rows([{**node, "lost": 7} for node in nodes], 100) == []


def test_predict_round_trip(trained, test_file, tmp_path):
    from gadget_svm.data import read_table

    answers = tmp_path / "new" / "answers.txt"
    result = gadget("predict", trained[1], test_file, "--out", answers)
    assert result.exit_code == 0, result.stderr
    X, y = read_table(test_file)
    model = load_model(trained[1] / "model.safetensors")
    assert [int(line) for line in answers.read_text().split()] == model.predict(X).tolist()
    assert f"accuracy {100 * model.score(X, y):.2f} %" in result.stdout
    piped = gadget("predict", trained[1] / "model.safetensors", test_file, "--node", 2, "--out", "-")
    assert [int(line) for line in piped.stdout.split()] == model.node(2).predict(X).tolist()
    assert "node 2" in piped.stderr


def test_predict_as_json(trained, test_file, tmp_path):
    _, out = trained
    plain = gadget("predict", out, test_file, "--out", "-").stdout.split()
    found = json.loads(gadget("predict", out, test_file, "--json").stdout)
    assert [str(answer) for answer in found["predictions"]] == plain
    assert (found["rows"], found["model"], found["unknown_labels"]) == (50, "the network average", [])
    assert f"{100 * found['accuracy']:.2f} %" in gadget("predict", out, test_file).stdout
    written = json.loads(gadget("predict", out, test_file, "--json", "--out", tmp_path / "p.txt").stdout)
    assert written["out"] == str(tmp_path / "p.txt")
    assert "predictions" not in written
    assert (tmp_path / "p.txt").read_text().split() == plain
    unlabelled = json.loads(gadget("predict", out, test_file, "--json", "--no-label").stdout)
    assert (unlabelled["accuracy"], unlabelled["predictions"]) == (None, found["predictions"])
    both = gadget("predict", out, test_file, "--json", "--out", "-")
    assert both.exit_code == 2
    assert "both write to stdout" in both.stderr


def test_predict_pads_a_narrow_file_and_refuses_a_wide_one(trained, tmp_path):
    narrow, wide = tmp_path / "narrow.svm", tmp_path / "wide.svm"
    narrow.write_text("1 1:2.0\n-1 1:-2.0\n")
    wide.write_text("1 1:2.0 9:1\n-1 1:-2.0\n")
    assert "accuracy 100.00 % of 2 rows" in gadget("predict", trained[1], narrow).stdout
    refused = gadget("predict", trained[1], wide)
    assert refused.exit_code == 2
    assert "9 features" in refused.stderr
    assert "trained on 6" in refused.stderr


def test_predict_says_when_labels_are_unknown(trained, tmp_path):
    (tmp_path / "cats.svm").write_text("7 1:2.0\n8 1:-2.0\n")
    result = gadget("predict", trained[1], tmp_path / "cats.svm")
    assert "no accuracy" in result.stdout
    assert "7, 8" in result.stdout
    assert gadget("predict", trained[1], tmp_path / "cats.svm", "--node", 4).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train", "adlt"], "Did you mean 'adult'?"),
        (["train", "FILE", "--topology", "rnig"], "Did you mean 'ring'?"),
        (["train", "FILE", "--algorithm", "gadgt"], "Did you mean 'gadget'?"),
        (["train", "FILE", "--gossip", "push-sm"], "Did you mean 'push-sum'?"),
        (["train", "FILE", "--stopping", "wieghts"], "Did you mean 'weights'?"),
        (["train", "FILE", "--fault", "los=0.1"], "Did you mean 'loss'?"),
        (["train", "FILE", "--partition", "evn"], "Did you mean 'even'?"),
        (["train", "FILE", "--set", "solvr=implicit"], "Did you mean 'solver'?"),
        (["train", "FILE", "--set", "solver"], "NAME=VALUE"),
        (["train", "FILE", "--fault", "loss=much"], "loss=0.1"),
        (["train", "FILE", "--stopping", "gap", "--algorithm", "gadget"], "use --algorithm pdmm"),
        (["train", "FILE", "--partition", "sizes:1,x"], "sizes:1,2,3"),
        (["train", "FILE", "--lam", "-1"], "--lam must be a positive number"),
        (["train", "FILE", "--nodes", "121"], "more than the 120 rows"),
        (["train", "FILE", "--positive", "5"], "no row has the label '5'"),
        (["train", "nowhere.svm"], "nowhere.svm"),
        (["predict", "nowhere.safetensors", "FILE"], "no model file"),
        (["topology", "stra"], "Did you mean 'star'?"),
        (["predict", "nowhere", "FILE", "--format", "xml"], "--format xml: unknown format 'xml'. Known: csv, npz,"),
        (["predict", "nowhere", "FILE", "--out", "memory://x"], "--out memory://x is lost"),
        (["topology", "ring", "--gamma", "0"], "--gamma"),
        (["topology", "ring", "--seed", "-1"], "--seed must be a whole number of at least 0, got -1"),
        (["peer", "demo", "--seed", "-1"], "--seed must be a whole number of at least 0, got -1"),
        (["data", "path", "mnst"], "Did you mean 'mnist'?"),
        (["data", "path", "digits"], "scikit-learn"),
        (["data", "fetch", "digits"], "nothing to download"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_code_2(arguments, hint, train_file):
    result = gadget(*[train_file if word == "FILE" else word for word in arguments])
    assert result.exit_code == 2, result.output
    assert hint in result.stderr
    assert "Traceback" not in result.output
    assert sum(line.startswith("error: ") for line in result.stderr.splitlines()) == 1


WRONG_OPTIONS = [
    ("--engine spark", "--engine spark"),
    ("--lam -1", "--lam must be"),
    ("--lam 0", "--lam must be"),
    ("--nodes 0", "--nodes must be"),
    ("--nodes -3", "--nodes must be"),
    ("--topology rnig", "--topology rnig"),
    ("--topology torus:3x3 --nodes 10", "--topology torus:3x3"),
    ("--algorithm gadgt", "--algorithm gadgt"),
    ("--gossip push-sm", "--gossip push-sm"),
    ("--rounds 0", "error: --rounds must be a whole number of at least 1, got 0"),
    ("--rounds foo", "error: --rounds must be a whole number of at least 1, 'mix' or 'diameter', got 'foo'"),
    ("--local-steps 0", "error: --local-steps must be a whole number of at least 1, got 0"),
    ("--batch-size 0", "error: --batch-size must be a whole number of at least 1, got 0"),
    ("--set theta=5", "--set theta=5"),
    ("--set thta=0.9", "Did you mean 'theta'?"),
    ("--set theta=0.9 --local-steps 3", "--algorithm pdmm"),
    ("--stopping wieghts", "--stopping wieghts"),
    ("--stopping gap --algorithm gadget", "use --algorithm pdmm"),
    ("--stopping average --algorithm gadget --last", "--last"),
    ("--tol 0", "--tol must be"),
    ("--max-iter 0", "--max-iter must be"),
    ("--max-seconds 0", "--max-seconds must be"),
    ("--record-every -1", "--record-every must be"),
    ("--jobs 0", "--jobs 0"),
    ("--drop 2", "error: --drop must be a probability, between 0 and 1, got 2\n"),
    ("--seed -1", "error: --seed must be a whole number of at least 0, got -1"),
    ("--threads -5", "error: --threads -5 is no number of threads: use at least 1, or -1 for every core"),
    ("-j -5", "error: -j -5 is no number of threads"),
    ("--resume maybe", "error: --resume maybe: unknown choice 'maybe'. Known: auto, false, true."),
    ("--resume maybe --engine ray --checkpoint-dir x", "error: --resume maybe: unknown choice"),
    ("--engine-option resume=maybe --engine ray", "error: --engine-option resume must be True, False or 'auto'"),
    ("--out memory://x", "error: --out memory://x is lost when this command ends"),
    ("--report memory://x", "error: --report memory://x is lost when this command ends"),
    ("--fault los=0.1", "--fault los=0.1"),
    ('--fault crash={"nodes":[12]} --nodes 5', "no node 12"),
    ("--partition evn", "--partition evn"),
    ("--partition sizes:1,x", "--partition sizes:1,x"),
    ("--engine-option blocks=0", "--engine-option blocks must be"),
    ("--engine-option actors=0 --engine ray", "--engine-option actors must be"),
    ("--engine ray --drop 0.1", "--engine local"),
    ("--test nowhere.svm", "nowhere.svm"),
    ("--format cvs", "--format cvs"),
    ("--lambda -1", "--lambda must be"),
    ("-n 0", "-n must be"),
    ("--threads 0", "--threads 0"),
    ("--address auto", "--address is for a Ray cluster: add --engine ray"),
    ("--actors 0 --engine ray", "--actors must be"),
    ("--engine ray --resume true", "--checkpoint-dir"),
    ("--engine ray --actors 2 --engine-option actors=3", "--actors and --engine-option actors"),
    ("--C -1", "error: --C must be"),
    ("--C 1 --lambda 1", "error: --lambda and --C both"),
    ("--multi-class all", "--multi-class 'all'"),
    ("--engine-option blcks=1", "--engine-option"),
    ("-t torus:3x3 -n 10", "error: -t torus:3x3"),
    ("-a pdm", "error: -a pdm"),
]


@pytest.mark.parametrize(("typed", "named"), WRONG_OPTIONS)
def test_a_wrong_option_is_named_as_typed_before_the_data_is_read(typed, named, train_file, monkeypatch):
    for reader in ("load_dataset", "shards_of"):
        monkeypatch.setattr(f"gadget_svm.cli.train.{reader}", lambda *_, **__: pytest.fail("the data was read"))
    result = gadget("train", train_file, *typed.split())
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert named in result.stderr
    sentence = result.stderr.partition("Known: ")[0]
    assert not re.search(r"\b(n_nodes|n_jobs|max_iter|max_seconds|record_every|gossip_rounds|None)\b", sentence)


def test_every_setting_of_an_algorithm_has_an_option():
    from gadget_svm.algorithms import ALGORITHMS
    from gadget_svm.cli.option_names import OPTIONS
    from gadget_svm.cli.option_names import SETTINGS as SET

    names = {name for algorithm in ALGORITHMS.values() for name in algorithm().get_params()}
    assert names <= {*OPTIONS, *SET}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("raise max_iter or tol, or use stopping=None", "raise --max-iter or --tol, or use --stopping none"),
        ("use fit_intercept=False or lam=0.5", "use --no-intercept or --lambda 0.5"),
        ("Pdmm(neighbours='all')", "Pdmm(--set neighbours=all)"),
        ("data/lam/x.csv, column 'tol': no", "data/lam/x.csv, column 'tol': no"),
        ("engine option num_cpus must be 1", "--engine-option num_cpus must be 1"),
        ("unknown x 'a'. Known: max_iter, tol.", "unknown x 'a'. Known: max_iter, tol."),
    ],
)
def test_python_names_become_options(text, shown):
    from gadget_svm.cli.option_names import in_options

    assert in_options(text, ["train", "x", "--lambda=-1"]) == shown


def test_a_setting_given_beside_auto_changes_no_other():
    algorithm = make_algorithm(Order("x", settings=["theta=0.9"]))
    assert (algorithm.theta, algorithm.neighbours) == (0.9, "all")


def test_nan_in_a_file_names_the_file(tmp_path):
    bad = write_rows(tmp_path / "bad.svm", poison="1 1:nan 2:1\n")
    result = gadget("train", bad)
    assert result.exit_code == 2
    assert "bad.svm" in result.stderr


def test_a_test_label_nobody_trained_on_is_found_before_training(train_file, tmp_path):
    (tmp_path / "test.svm").write_text("3 1:1\n1 1:2\n")
    result = gadget("train", train_file, "--test", tmp_path / "test.svm")
    assert result.exit_code == 2
    assert "label 3" in result.stderr
    assert "iteration" not in result.stderr


def test_debugging_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("GADGET_DEBUG", "1")
    assert isinstance(gadget("train", "adlt").exception, ValueError)


def test_a_place_that_cannot_be_written_is_found_before_training(train_file, tmp_path):
    (tmp_path / "file").write_text("")
    for option in ("--out", "--report"):
        result = gadget("train", train_file, option, tmp_path / "file" / "below.html")
        assert result.exit_code == 2
        assert "not a folder" in result.stderr
        assert "iteration" not in result.stderr
    folder = gadget("train", train_file, "--report", tmp_path)
    assert "name a file" in folder.stderr


def test_a_report_without_plotly_fails_before_training(train_file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    result = gadget("train", train_file, "--report", tmp_path / "r.html")
    assert result.exit_code == 2
    assert "pip install 'gadget-svm[report]'" in result.stderr
    assert "iteration" not in result.stderr


def test_report_option_writes_a_report(train_file, tmp_path):
    result = gadget("train", train_file, *QUICK, "--report", tmp_path / "new" / "r.html")
    assert result.exit_code == 0, result.stderr
    assert "train.svm" in (tmp_path / "new" / "r.html").read_text(encoding="utf-8")


def test_lost_messages_switch_to_running_sums_and_say_so(train_file):
    assert "running sums" in gadget("train", train_file, *QUICK, "--drop", "0.1").stderr
    assert "running sums" in gadget("train", train_file, *QUICK, "--fault", "loss=0.1").stderr
    assert "running sums" not in gadget("train", train_file, *QUICK, "--fault", "delay=2").stderr
    assert "running sums" not in gadget("train", train_file, *QUICK, "--drop", "0.1", "--gossip", "push-sum").stderr


def test_ctrl_c_while_the_program_loads_prints_no_traceback():
    code = (
        "import signal, sys\n"
        "class Impatient:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'gadget_svm.cli.app': signal.raise_signal(signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Impatient())\n"
        "from gadget_svm.cli import main\n"
        "main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert (result.returncode, result.stderr) == (130, "aborted\n")


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from gadget_svm.cli import main\n"
        "sys.argv = ['gadget', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'numba', 'sklearn', 'networkx', 'plotly', 'pandas', 'safetensors'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert result.returncode == 0, f"imported: {result.stderr}"
    assert all(command in result.stdout for command in ("demo", "train", "predict", "topology", "data"))


@pytest.mark.parametrize("command", [[], ["train"], ["predict"], ["data", "list"], ["peer", "status"], ["certs"]])
def test_h_is_help(command):
    result = gadget(*command, "-h")
    assert result.exit_code == 0, result.output
    assert "Usage" in result.stdout


def test_short_and_conventional_options_mean_the_same(train_file, tmp_path):
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


def test_options_of_a_cluster_reach_the_engine():
    order = Order("x", engine="ray", address="auto", actors=3, checkpoint_dir="ck", resume="auto")
    assert engine_options(order) == {"address": "auto", "actors": 3, "checkpoint_dir": "ck", "resume": "auto"}
    assert engine_options(Order("x", engine="ray", resume="true"))["resume"] is True


def test_the_list_of_data_sets_as_json(tmp_path):
    listed = json.loads(gadget("data", "list", "--json", "--data-dir", tmp_path).stdout)
    assert {"digits", "adult"} <= {entry["name"] for entry in listed}


def test_completion_is_offered():
    assert "--show-completion" in gadget("--help").stdout


def table_of(path, separator="\t", rows=60):
    """A table without a header whose label, a word, stands in front."""
    X = np.random.default_rng(0).normal(size=(rows, 3))
    lines = [separator.join(["no" if x[0] < 0 else "yes", *map(str, x)]) for x in X]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_errors_about_a_table_name_the_options_that_help(tmp_path):
    words = gadget("train", table_of(tmp_path / "x.tsv"))
    assert "--label 0" in words.stderr
    numbers = tmp_path / "y.tsv"
    numbers.write_text((tmp_path / "x.tsv").read_text().replace("yes", "1").replace("no", "0"))
    result = gadget("train", numbers)
    assert result.exit_code == 2
    assert "the last column was taken as the label" in result.stderr
    assert "--label 0" in result.stderr
    unknown = gadget("train", table_of(tmp_path / "x.data"))
    assert "--format csv" in unknown.stderr
    named = tmp_path / "z.csv"
    named.write_text("grade,price\n" + "".join(f"{i % 2},{i / 7}\n" for i in range(50)))
    assert "the column 'price' was taken as the label" in gadget("train", named).stderr


def test_a_label_that_was_guessed_is_named(tmp_path, caplog):
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


def test_topology_as_table_and_json():
    facts = json.loads(gadget("topology", "ring", "--nodes", 12, "--json").stdout)
    assert (facts["nodes"], facts["edges"], facts["diameter"], facts["degree_max"]) == (12, 12, 6, 2)
    table = gadget("topology", "ring", "--nodes", 12).stdout
    assert "diameter" in table
    assert f"{facts['tau_mix']:.5g}" in table


def test_data_list_and_version(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    listed = gadget("data", "list", "--data-dir", tmp_path).stdout
    assert all(name in listed for name in ("digits", "adult", "ccat", "gisette", "3.07e-05"))
    assert gadget("--version").stdout.startswith("gadget-svm 0.")


def test_data_path_finds_a_given_folder(tmp_path):
    (tmp_path / "adult").mkdir()
    for name in ("a9a", "a9a.t"):
        write_rows(tmp_path / "adult" / name)
    assert gadget("data", "path", "adult", "--data-dir", tmp_path).stdout.strip() == str(tmp_path / "adult")


def test_demo_reaches_97_per_cent_on_every_node(tmp_path):
    result = gadget("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.stderr
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert len(summary["nodes"]) == 10
    assert min(node["test_accuracy"] for node in summary["nodes"]) >= 0.97
    assert summary["reference"]["train_objective"] <= summary["average"]["train_objective"] * 1.001
    assert "one machine" in result.stdout
    assert str(tmp_path / "demo" / "report.html") in result.stderr
    assert (tmp_path / "demo" / "report.html").stat().st_size > 1_000_000, "plotly is inside"


def test_demo_without_plotly_says_how_to_get_the_report(tmp_path, monkeypatch):
    for name in ("plotly", "plotly.graph_objects"):
        monkeypatch.setitem(sys.modules, name, None)
    result = gadget("demo", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["nodes"]) == 10
    assert "pip install 'gadget-svm[report]'" in result.stderr
    assert (tmp_path / "model.safetensors").exists()
    assert not (tmp_path / "report.html").exists()


def test_options_of_the_algorithm_reach_it():
    order = Order("x", algorithm="gadget", gossip="pairwise", rounds="3", local_steps=2, average=False, project=False)
    algorithm = make_algorithm(order)
    assert (algorithm.gossip, algorithm.gossip_rounds, algorithm.local_steps) == ("pairwise", 3, 2)
    assert (algorithm.average, algorithm.project, algorithm.solver) == (False, False, "pegasos")
    assert make_algorithm(Order("x", rounds="mix", settings=["mass=restarted", "gamma=1e-3"])).gamma == 0.001


def test_defaults_that_depend_on_the_data():
    assert not wants_intercept(Order("adult"))
    assert wants_intercept(Order("digits"))
    assert wants_intercept(Order("some/file.svm"))
    assert wants_intercept(Order("adult", intercept=True))
    assert stopping_for(Order("x")) == "auto"
    assert stopping_for(Order("x", stopping="none")) is None


def test_partitions_and_faults_are_parsed():
    y = np.repeat([0, 1], 30)
    assert share_out(Order("x"), y) is None
    assert np.bincount(share_out(Order("x", partition="sizes:1,2,3"), y)).tolist() == [10, 20, 30]
    assert set(y[share_out(Order("x", partition="sorted", nodes=2), y) == 0]) == {0}
    assert share_out(Order("x", partition="label-skew:0.1", nodes=5), y).max() == 4
    faults = make_faults(Order("x", drop=0.2, fault=['crash={"nodes": [3], "at": 100}']).fault_texts)
    assert (faults[0].p, faults[1].at, list(faults[1].nodes)) == (0.2, 100, [3])


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere():
    from io import StringIO

    from rich.console import Console

    records = [
        {"iteration": t, "objective": 1 / t, "disagreement": 0.1, "seconds": t / 100} for t in (1, 2, 3, 4, 5, 64)
    ]
    plain, fancy = StringIO(), StringIO()
    with Lines(Console(file=plain)) as lines:
        for record in records:
            lines.record(record)
    assert [line.split()[1] for line in plain.getvalue().splitlines()] == ["1,", "4,", "64,"]
    with Bar(Console(file=fancy, force_terminal=True, width=100), 100, None) as bar:
        for record in records:
            bar.record(record)
            bar.tick()
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
def test_the_stopping_rule_suits_the_algorithm(train_file, tmp_path, options, rule):
    """auto is PDMM where it applies, and the settings of GADGET mean GADGET."""
    result = gadget("train", train_file, "--nodes", 5, "--lam", "0.01", "--max-iter", 40, "--out", tmp_path, *options)
    assert result.exit_code == 0, result.stderr
    assert json.loads((tmp_path / "summary.json").read_text())["parameters"]["stopping"] == rule


def certified(path, *more):
    return gadget("train", path, "--nodes", 5, "--lam", "0.01", "--algorithm", "pdmm", "--stopping", "gap", *more)


def test_a_certified_training_says_how_far_from_the_optimum_it_can_be(train_file, tmp_path):
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


def test_a_training_without_a_certificate_says_why(train_file):
    result = certified(train_file, "--max-iter", 30, "--topology", "complete", "--fault", "partition=1", "--quiet")
    assert result.exit_code == 0, result.stderr
    assert "not converged: the rule 'gap' got no certificate, as" in result.stdout
    assert "cut off from the others, and waits for 0.01" in result.stdout
    far = certified(train_file, "--max-iter", 30, "--tol", "1e-9", "--quiet")
    assert "the rule 'gap' last saw" in far.stdout


def test_a_certificate_without_the_rows_of_the_departed_says_so(train_file):
    gone = """crash={"nodes": [1, 2], "at": 5}"""
    result = certified(train_file, "--tol", "0.05", "--topology", "complete", "--fault", gone, "--quiet")
    assert "above the optimum, counting the rows of 3 of 5 nodes, not of node 1, node 2." in result.stdout


FEATURES = ("a", "b", "c", "d", "e", "f")


@pytest.fixture
def named_model(trained, tmp_path):
    """The trained model, of columns that have names."""
    model = load_model(trained[1] / "model.safetensors")
    model.feature_names_in_ = np.array(FEATURES, dtype=object)
    save_model(model, tmp_path / "named.safetensors")
    return tmp_path / "named.safetensors"


UNLABELLED = {
    "names.csv": ",".join(FEATURES) + "\n2,0,0,0,0,0\n-2,0,0,0,0,1\n",
    "another-order-and-more.csv": "id,f,e,d,c,b,a\n7,0,0,0,0,0,2\n8,1,0,0,0,0,-2\n",
    "plain.csv": "2,0,0,0,0,0\n-2,0,0,0,0,1\n",
}


@pytest.mark.parametrize("name", UNLABELLED)
@pytest.mark.parametrize("told", [(), ("--no-label",)])
def test_predict_takes_rows_without_labels(named_model, tmp_path, name, told):
    data = tmp_path / name
    data.write_text(UNLABELLED[name])
    result = gadget("predict", named_model, data, "--out", "-", *told)
    assert result.exit_code == 0, result.stderr
    model = load_model(named_model)
    del model.feature_names_in_
    rows = np.array([[2.0, 0, 0, 0, 0, 0], [-2.0, 0, 0, 0, 0, 1]])
    assert [int(line) for line in result.stdout.split()] == model.predict(rows).tolist()
    assert "2 rows predicted by the network average" in result.stderr


def test_predict_takes_arrays_and_svmlight_without_labels_when_told(trained, tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([[2.0, 0, 0, 0, 0, 0], [-2.0, 0, 0, 0, 0, 1]]))
    (tmp_path / "t.svm").write_text("0 1:2\n0 1:-2 6:1\n")
    answers = [gadget("predict", trained[1], tmp_path / f, "--no-label", "--out", "-") for f in ("t.npz", "t.svm")]
    assert [one.exit_code for one in answers] == [0, 0]
    assert answers[0].stdout == answers[1].stdout
    assert "y" in gadget("predict", trained[1], tmp_path / "t.npz").stderr


def test_predict_tells_a_wrong_table_from_one_without_labels(named_model, tmp_path):
    (tmp_path / "wrong.csv").write_text("a,b,c,d,e,other,label\n1,2,3,4,5,6,cat\n")
    refused = gadget("predict", named_model, tmp_path / "wrong.csv")
    assert refused.exit_code == 2
    assert "no column 'f'" in refused.stderr
    both = gadget("predict", named_model, tmp_path / "wrong.csv", "--no-label", "--label", "label")
    assert both.exit_code == 2
    assert "leave out --label" in both.stderr


def test_predict_matches_columns_by_name(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)) * [1.0, 0.1, 0.1]
    y = np.where(X[:, 0] > 0, "yes", "no")
    lines = [f"{a},{b},{c},{label}" for (a, b, c), label in zip(X, y, strict=True)]
    turned = [f"{c},{label},{b},{a}" for (a, b, c), label in zip(X, y, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,label", *lines]) + "\n")
    (tmp_path / "turned.csv").write_text("\n".join(["c,label,b,a", *turned]) + "\n")
    trained = gadget("train", tmp_path / "rows.csv", "--nodes", 3, "--out", tmp_path / "out", "--quiet")
    assert trained.exit_code == 0, trained.output
    said = [
        json.loads(gadget("predict", tmp_path / "out", tmp_path / f, "--json").stdout)
        for f in ("rows.csv", "turned.csv")
    ]
    assert said[0]["accuracy"] == said[1]["accuracy"] > 0.9


def test_a_command_does_not_write_over_what_it_reads(trained, tmp_path):
    pytest.importorskip("plotly")
    rows = write_rows(tmp_path / "rows.svm")
    content = rows.read_bytes()
    link = tmp_path / "link.svm"
    link.symlink_to(rows)
    for command in (
        ("predict", trained[1], rows, "--out", rows),
        ("predict", trained[1], rows, "--out", link),
        ("train", rows, "--report", rows),
        ("train", rows, "--test", link, "--report", rows),
    ):
        found = gadget(*command)
        assert found.exit_code == 2
        assert "is also what this command reads" in found.stderr
        assert rows.read_bytes() == content


def test_links_pipes_and_folders_are_not_replaced(trained, test_file, tmp_path):
    target, link = tmp_path / "answers.txt", tmp_path / "link.txt"
    target.write_text("")
    count = len(test_file.read_text().splitlines())
    link.symlink_to(target)
    assert gadget("predict", trained[1], test_file, "--out", link).exit_code == 0
    assert link.is_symlink()
    assert len(target.read_text().split()) == count
    found = gadget("predict", trained[1], test_file, "--out", tmp_path)
    assert (found.exit_code, "is a folder: name a file" in found.stderr) == (2, True)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert gadget("predict", trained[1], test_file, "--out", pipe).exit_code == 0
        assert len(os.read(reader, 10_000).split()) == count
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_predict_refuses_a_guessed_label_that_is_none(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    y = (X[:, 0] > 0).astype(int)
    np.savetxt(tmp_path / "last.csv", np.c_[X, y], delimiter=",", fmt="%g")
    np.savetxt(tmp_path / "first.csv", np.c_[y, X], delimiter=",", fmt="%g")
    assert gadget("train", tmp_path / "last.csv", "--out", tmp_path / "model", "-n", 3).exit_code == 0
    found = gadget("predict", tmp_path / "model", tmp_path / "first.csv")
    assert found.exit_code == 2
    assert "--label 0 says that the label is in front" in found.stderr
    assert "accuracy" in gadget("predict", tmp_path / "model", tmp_path / "first.csv", "--label", 0).stdout


def test_errors_about_stdin_name_stdin(tmp_path):
    found = CliRunner().invoke(app, ["train", "-"], input="a,b\n1,yes\n")
    assert found.exit_code == 2
    assert "error: stdin: cannot tell its format" in found.stderr
    assert "is empty" in gadget("train", write_rows(tmp_path / "rows.svm"), "--out", "").stderr
