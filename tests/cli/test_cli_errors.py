"""Wrong input: one line that names the option as typed, before anything is read or written."""

import re
import sys
import warnings
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from gadget_svm import GadgetSVC
from gadget_svm.algorithms import ALGORITHMS
from gadget_svm.cli.app import app
from gadget_svm.cli.option_names import in_options
from gadget_svm.cluster.connection import ClusterError
from support.cli_kit import QUICK, gadget, table_of, write_rows


def test_cluster_failure_is_one_line(train_file, monkeypatch):
    def lost(*_, **__):
        raise ClusterError("all actors are lost: see Ray's logs")

    monkeypatch.setattr(GadgetSVC, "fit", lost)
    result = gadget("train", train_file, *QUICK)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "error: all actors are lost: see Ray's logs")


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
        (["predict", "nowhere", "FILE", "--format", "xml"], "--format xml: 'xml' is not one of 'svmlight', 'csv',"),
        (["predict", "nowhere", "FILE", "--out", "memory://x"], "--out memory://x: it is lost"),
        (["topology", "ring", "--gamma", "0"], "--gamma"),
        (["topology", "ring", "--seed", "-1"], "--seed -1: "),
        (["peer", "demo", "--seed", "-1"], "--seed -1: "),
        (["data", "path", "mnst"], "Did you mean 'mnist'?"),
        (["data", "path", "digits"], "scikit-learn"),
        (["data", "fetch", "digits"], "nothing to download"),
    ],
)
def test_wrong_word(arguments, hint, train_file):
    result = gadget(*[train_file if word == "FILE" else word for word in arguments])
    assert result.exit_code == 2, result.output
    assert hint in result.stderr
    assert "Traceback" not in result.output
    assert sum(line.startswith("error: ") for line in result.stderr.splitlines()) == 1


WRONG_OPTIONS = [
    ("--engine spark", "--engine spark"),
    ("--lam -1", "--lam must be"),
    ("--lam 0", "--lam must be"),
    ("--nodes 0", "error: --nodes 0: "),
    ("--nodes -3", "error: --nodes -3: "),
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
    ("--set robust=clp --algorithm gadget", "error: --set robust=clp: "),
    ("--set robust=trim --algorithm gadget -t ring -n 5", "a node of 'ring' has 2: use a denser topology"),
    ("--set theta=0.9 --local-steps 3", "--algorithm pdmm"),
    ("--stopping wieghts", "--stopping wieghts"),
    ("--stopping gap --algorithm gadget", "use --algorithm pdmm"),
    ("--stopping average --algorithm gadget --last", "--last"),
    ("--tol 0", "--tol must be"),
    ("--max-iter 0", "--max-iter must be"),
    ("--max-seconds 0", "--max-seconds must be"),
    ("--record-every -1", "--record-every must be"),
    ("--jobs 0", "--jobs 0"),
    ("--drop 2", "error: --drop 2: "),
    ("--seed -1", "error: --seed -1: "),
    ("--threads -5", "error: --threads -5: "),
    ("-j -5", "error: -j -5: "),
    ("--resume maybe", "error: --resume maybe: 'maybe' is not one of 'auto', 'true', 'false'"),
    ("--resume maybe --engine ray --checkpoint-dir x", "error: --resume maybe: 'maybe' is not one of"),
    ("--engine-option resume=maybe --engine ray", "error: --engine-option resume must be True, False or 'auto'"),
    ("--out memory://x", "error: --out memory://x/model.safetensors: it is lost when this command ends"),
    ("--report memory://x", "error: --report memory://x: it is lost when this command ends"),
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
    ("-n 0", "error: -n 0: "),
    ("--threads 0", "--threads 0"),
    ("--address auto", "--address is for a Ray cluster: add --engine ray"),
    ("--actors 0 --engine ray", "--actors must be"),
    ("--engine ray --resume true", "--checkpoint-dir"),
    ("--engine ray --actors 2 --engine-option actors=3", "--actors and --engine-option actors"),
    ("--C -1", "error: --C must be"),
    ("--C 1 --lambda 1", "error: --lambda 1.0 and --C 1.0 both set the regularisation: give one of them"),
    ("--multi-class all", "error: --multi-class all: 'all' is not one of 'ovr', 'ovo'"),
    ("--engine-option blcks=1", "--engine-option"),
    ("-t torus:3x3 -n 10", "error: -t torus:3x3"),
    ("-a pdm", "error: -a pdm"),
]


@pytest.mark.parametrize(("typed", "named"), WRONG_OPTIONS)
def test_wrong_option_as_typed(typed, named, train_file, monkeypatch):
    for reader in ("load_dataset", "read_raw"):
        monkeypatch.setattr(f"gadget_svm.cli.train_data.{reader}", lambda *_, **__: pytest.fail("the data was read"))
    result = gadget("train", train_file, *typed.split())
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert named in result.stderr
    sentence = result.stderr.partition("Known: ")[0]
    assert not re.search(r"\b(n_nodes|n_jobs|max_iter|max_seconds|record_every|gossip_rounds|None)\b", sentence)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("raise max_iter or tol, or use stopping=None", "raise --max-iter or --tol, or use --stopping none"),
        ("use fit_intercept=False or lam=0.5", "use --no-intercept or --lambda 0.5"),
        ("use Pdmm(neighbours='all')", "use --algorithm pdmm --set neighbours=all"),
        (
            "use Gadget(gossip='running-sum', gossip_rounds=1), or",
            "use --algorithm gadget --gossip running-sum --rounds 1, or",
        ),
        ("data/lam/x.csv, column 'tol': no", "data/lam/x.csv, column 'tol': no"),
        ("engine option num_cpus must be 1", "--engine-option num_cpus must be 1"),
        ("unknown x 'a'. Known: max_iter, tol.", "unknown x 'a'. Known: max_iter, tol."),
    ],
)
def test_in_options(text, shown):
    train = typer.main.get_command(app).commands["train"]
    assert in_options(text, train, ["train", "x", "--lambda=-1"]) == shown


def test_nan_names_the_file(tmp_path):
    bad = write_rows(tmp_path / "bad.svm", poison="1 1:nan 2:1\n")
    result = gadget("train", bad)
    assert result.exit_code == 2
    assert "bad.svm" in result.stderr


def test_unknown_test_label(train_file, tmp_path):
    (tmp_path / "test.svm").write_text("3 1:1\n1 1:2\n")
    result = gadget("train", train_file, "--test", tmp_path / "test.svm")
    assert result.exit_code == 2
    assert "label 3" in result.stderr
    assert "iteration" not in result.stderr


def test_debug_traceback(monkeypatch):
    monkeypatch.setenv("GADGET_DEBUG", "1")
    assert isinstance(gadget("train", "adlt").exception, ValueError)


def test_unwritable_target(train_file, tmp_path):
    (tmp_path / "file").write_text("")
    for option in ("--out", "--report"):
        result = gadget("train", train_file, option, tmp_path / "file" / "below.html")
        assert result.exit_code == 2
        assert "not a folder" in result.stderr
        assert "iteration" not in result.stderr
    folder = gadget("train", train_file, "--report", tmp_path)
    assert "name a file" in folder.stderr


def test_report_without_plotly(train_file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    result = gadget("train", train_file, "--report", tmp_path / "r.html")
    assert result.exit_code == 2
    assert "pip install 'gadget-svm[report]'" in result.stderr
    assert "iteration" not in result.stderr


def test_table_errors_name_options(tmp_path):
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


def test_input_is_not_overwritten(trained, tmp_path):
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
        assert "this command reads it" in found.stderr
        assert rows.read_bytes() == content


def test_errors_name_stdin(tmp_path):
    found = CliRunner().invoke(app, ["train", "-"], input="a,b\n1,yes\n")
    assert found.exit_code == 2
    assert "error: stdin: its format is unknown" in found.stderr
    assert "is empty" in gadget("train", write_rows(tmp_path / "rows.svm"), "--out", "").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--algorithm", "broken"], "error: --algorithm broken: 'broken' is the entry point 'math:nothing'"),
        (["--algorithm", "gadgt"], "error: --algorithm gadgt: unknown algorithm 'gadgt'. Did you mean 'gadget'?"),
    ],
)
def test_broken_package(arguments, said, train_file, monkeypatch):
    """A part of another package that cannot be imported: one line if it is used, and nothing otherwise."""
    monkeypatch.setattr(ALGORITHMS, "_outside", {"broken": EntryPoint("broken", "math:nothing", ALGORITHMS.group)})
    result = gadget("train", train_file, *arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert result.stderr.startswith(said)


def test_warning_is_one_line_in_options(train_file, monkeypatch):
    fit = GadgetSVC.fit

    def warned(*given, **more):
        warnings.warn("use multi_class='ovo'", UserWarning, stacklevel=1)
        return fit(*given, **more)

    monkeypatch.setattr(GadgetSVC, "fit", warned)
    result = gadget("train", train_file, *QUICK, "--quiet")
    assert (result.exit_code, result.stderr) == (0, "warning: use --multi-class ovo\n")
