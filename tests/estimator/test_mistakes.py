"""Twenty mistakes that new users make, and the message each one gets: what is wrong, and what to do about it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from typer.testing import CliRunner

from gadget_svm import Gadget, GadgetSVC, NodeRecords, load_model
from gadget_svm.algorithms import Pdmm
from gadget_svm.cli.app import app
from gadget_svm.data import read_table
from gadget_svm.data.partition import assign_sites

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4))
y = (X[:, 0] > 0).astype(int)
SITES = np.repeat(["mayo", "charite", "karolinska"], 20)


def _fit(**params):
    return lambda **given: GadgetSVC(max_iter=5, stopping=None, **params).fit(X, y, **given)


def _batch(**given) -> Callable[[], object]:
    return lambda: GadgetSVC().partial_fit(X, y, classes=[0, 1], **given)


def _changed(**params) -> Callable[[], object]:
    """A second batch after some parameter was changed."""
    three = np.arange(60) % 3
    return lambda: GadgetSVC().partial_fit(X, three, classes=[0, 1, 2]).set_params(**params).partial_fit(X, three)


class Unfinished:
    """A user's own fault that does not say whether it loses messages."""

    def wrap(self, exchange, world):  # noqa: ARG002
        return exchange


class Mistake(NamedTuple):
    """What somebody did, the type of the error, and what its message has to name."""

    what: str
    do: Callable[[], object]
    error: type[Exception]
    names: tuple[str, ...]


MISTAKES = [
    Mistake(
        "the graph has other labels than the sites",
        lambda: _fit(topology=nx.Graph([("mayo", "charite"), ("mayo", "kings")]))(sites=SITES),
        ValueError,
        ("karolinska", "kings"),
    ),
    Mistake("a site is not known", lambda: _fit()(sites=[None] * 60), ValueError, ("None", "give every row a site")),
    Mistake("sites are a table", lambda: _fit()(sites=SITES[:, None]), ValueError, ("(60, 1)", "single column")),
    Mistake("sites are a column's name", lambda: _fit()(sites="hospital"), TypeError, ("'hospital'", "per row")),
    Mistake("sites are too few", lambda: _fit()(sites=SITES[:5]), ValueError, ("5 entries", "60 rows")),
    Mistake("arguments swapped", lambda: assign_sites(4, y), TypeError, ("assign_sites(y, n_nodes)",)),
    Mistake("half a node", lambda: assign_sites(y, 2.5), TypeError, ("n_nodes", "whole number", "2.5")),
    Mistake("nodes are a text", lambda: assign_sites(y, "3"), TypeError, ("n_nodes", "whole number", "'3'")),
    Mistake("a batch's sites are a table", _batch(sites=SITES[:, None]), ValueError, ("(60, 1)", "single column")),
    Mistake("a batch's sites are a number", _batch(sites=3), TypeError, ("one label per row", "3")),
    Mistake("a matrix is a list", _fit(topology=[[0, 1], [1, 0]]), TypeError, ("numpy array", "np.asarray", "list")),
    Mistake(
        "two sites are cut off",
        lambda: _fit(topology=nx.Graph([("mayo", "charite"), ("oslo", "bern"), ("oslo", "lyon")]))(),
        ValueError,
        ("node 'charite'", "'mayo'", "from node 'bern'"),
    ),
    Mistake("other outputs for a batch", _changed(multi_class="ovo"), ValueError, ("'ovr'", "'ovo'", "set it back")),
    Mistake("other nodes for a batch", _changed(n_nodes=4), ValueError, ("10 nodes", "n_nodes is 4", "set it back")),
    Mistake("other features for a batch", _changed(fit_intercept=False), ValueError, ("fit_intercept", "set it back")),
    Mistake("a fault is unfinished", _fit(faults=Unfinished()), TypeError, ("Unfinished", "'loses'")),
    Mistake("a fault is a class", _fit(faults=Unfinished), TypeError, ("Unfinished()",)),
    Mistake("a fault is misspelt", _fit(faults="los=0.1"), ValueError, ("'los'", "'loss'")),
    Mistake(
        "a setting of an algorithm that is a name",
        lambda: GadgetSVC().set_params(algorithm__local_steps=3),
        ValueError,
        ("'auto'", "algorithm=Gadget(local_steps=3)"),
    ),
    Mistake("observers are no list", _fit(observers=NodeRecords()), TypeError, ("[NodeRecords()]",)),
    Mistake("an observer is a class", _fit(observers=[NodeRecords]), TypeError, ("NodeRecords()",)),
    Mistake("an observer is a function", _fit(observers=[print]), TypeError, ("derives from gadget_svm.Observer",)),
    Mistake("an algorithm is a class", _fit(algorithm=Gadget), TypeError, ("such as Gadget()",)),
    Mistake("an algorithm is misspelt", _fit(algorithm="pddm"), ValueError, ("'pddm'", "'pdmm'")),
    Mistake(
        "rounds are misspelt", _fit(algorithm=Gadget(gossip_rounds="mixx")), ValueError, ("gossip_rounds", "'mix'")
    ),
    Mistake("a topology is misspelt", _fit(topology="rign"), ValueError, ("'rign'", "'ring'")),
    Mistake("a seed is negative", _fit(random_state=-1), ValueError, ("random_state", "at least 0", "-1")),
    Mistake("lam is negative", _fit(lam=-1), ValueError, ("lam", "positive", "-1")),
    Mistake("more nodes than rows", _fit(n_nodes=100), ValueError, ("n_nodes=100", "60 rows")),
    Mistake("an engine is unknown", _fit(engine="spark"), ValueError, ("'spark'", "local, ray")),
    Mistake("PDMM on a directed graph", _fit(algorithm=Pdmm(), topology="k-out:3"), ValueError, ("undirected",)),
    Mistake(
        "labels of two kinds",
        lambda: GadgetSVC().fit(X, [1, "a", 2.0] * 20),
        ValueError,
        ("'a'", "1 (int)", "dtype=str"),
    ),
    Mistake(
        "a label is missing",
        lambda: GadgetSVC().fit(X, np.array(["a", None] * 30, dtype=object)),
        ValueError,
        ("'a'", "None", "drop rows"),
    ),
    Mistake(
        "classes of two kinds",
        lambda: GadgetSVC().partial_fit(X, y, classes=np.array([0, 1, "a"], dtype=object)),
        ValueError,
        ("classes has", "'a'", "0 (int)"),
    ),
    Mistake(
        "labels are measurements",
        lambda: GadgetSVC().fit(X, np.tile([0, 1.5, 2.7], 20)),
        ValueError,
        ("1.5 is a measurement", "y.astype(str)"),
    ),
    Mistake(
        "C is beyond all numbers with these weights",
        lambda: GadgetSVC(C=1.0).fit(X, y, sample_weight=np.full(60, 1e100)),
        ValueError,
        ("C=1.0", "sum of the rows' weights", "1e+60"),
    ),
    Mistake("one class only", lambda: GadgetSVC().fit(X, y * 0), ValueError, ("only one class", "at least two")),
    Mistake("a node that is not there", lambda: _fit()().node(99), LookupError, ("99", "0 to 9")),
    Mistake("no model there", lambda: load_model("nowhere/model"), FileNotFoundError, ("nowhere", "gadget train")),
    Mistake("a data file is not there", lambda: read_table(Path("nowhere.csv")), FileNotFoundError, ("nowhere.csv",)),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_a_mistake_gets_a_message_to_act_on(mistake):
    with pytest.raises(mistake.error) as caught:
        mistake.do()
    said = str(caught.value)
    assert all(name in said for name in mistake.names), said


COMMANDS = [
    ("an engine is unknown", "train digits --engine spark", ("--engine spark", "'local', 'ray'")),
    ("lam is negative", "train digits --lambda -1", ("--lambda", "-1")),
    ("no nodes", "train digits --nodes 0", ("--nodes", "0")),
    ("a data set is misspelt", "train adlut", ("adlut", "adult")),
    ("an option is misspelt", "train digits --node 3", ("--node", "--nodes")),
    ("a command is misspelt", "trian digits", ("trian", "gadget -h")),
    ("a number is a word", "train digits --lambda abc", ("--lambda abc", "valid", "gadget train -h")),
    ("a number is a word, with =", "train digits --nodes=2.5", ("--nodes 2.5", "valid")),
    ("a value is missing", "train digits --lam", ("--lam", "argument", "gadget train -h")),
    ("the data is missing", "train", ("DATA", "gadget train -h")),
    ("a file is not there", "train nowhere.csv", ("no file nowhere.csv",)),
    ("the files of a range are not there", "train nowhere-{0..3}.svm", ("no file nowhere-0.svm",)),
    ("a range is far too long", "train part-{0..9999999}.svm", ("10,000,000", "100,000")),
    ("a scheme is unknown, for models", "train digits --out foo://x", ("--out", "foo://x", "s3://")),
    (
        "a scheme is unknown, for the report",
        "train digits --report foo://x.html",
        ("--report", "foo://x.html", "s3://"),
    ),
    ("a scheme is unknown, for data", "train foo://x/y.csv", ("foo://x/y.csv", "s3://")),
    ("a URI where a path is needed", "demo --out s3://bucket/demo", ("s3://bucket/demo", "--out", "local path")),
    ("sizes for other nodes", "train nowhere.csv --partition sizes:1,2 -n 5", ("--partition", "2 nodes", "omit -n 5")),
    ("a topology's parameter", "train nowhere.csv --topology ring:x", ("--topology ring:x", "no parameter")),
    ("a torus without sides", "train nowhere.csv -t torus:x", ("torus:x", "torus:5x4")),
    ("a tree without a number", "train nowhere.csv -t tree:x", ("tree:x", "tree:2")),
    ("a degree that is none", "train nowhere.csv -n 5000 -t k-out:0", ("k-out:0", "k-out:20")),
]


@pytest.mark.parametrize(("what", "command", "names"), COMMANDS, ids=[command[0] for command in COMMANDS])
def test_a_mistake_on_the_command_line(what, command, names):  # noqa: ARG001
    outcome = CliRunner().invoke(app, command.split(), prog_name="gadget")
    assert outcome.exit_code == 2
    assert all(name in outcome.output for name in names), outcome.output
    assert outcome.output.strip().splitlines()[-1].startswith("error: ")  # one line, without a box


FILES = {
    "table.csv": b"a,b,y\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n",
    "rows.svm": b"0 1:1 2:2\n1 1:3 2:4\n",
    "amounts.csv": b"a,b,y\n1,2,0\n3,4,1.5\n5,6,2.7\n7,8,1.5\n",
}
FORMATS = [
    ("a table is no Parquet", "table.csv --format parquet", ("not of the format parquet", "--format csv")),
    ("a table is no npz", "table.csv --format npz", ("not of the format npz", "--format csv")),
    ("a table is no svmlight", "table.csv --format svmlight", ("line 1", "--format csv")),
    ("svmlight is no table", "rows.svm --format csv", ("one column", "--format svmlight")),
    ("npz is no table", "arrays.npz --format csv", ("arrays.npz", "--format npz")),
    ("npz is no Parquet", "arrays.npz --format parquet", ("arrays.npz", "--format npz")),
    ("labels are measurements", "amounts.csv", ("1.5 is a measurement", "--label", "--positive 1.5")),
    ("labels of shards are measurements", "amounts.csv table.csv", ("1.5 is a measurement", "--positive 1.5")),
]


@pytest.mark.parametrize(("what", "command", "names"), FORMATS, ids=[command[0] for command in FORMATS])
def test_a_mistake_about_a_file(what, command, names, tmp_path, monkeypatch):  # noqa: ARG001
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    np.savez("arrays.npz", X=X, y=y)
    outcome = CliRunner().invoke(app, ["train", *command.split()])
    assert outcome.exit_code == 2
    assert all(name in outcome.output for name in names), outcome.output
