"""Twenty mistakes that new users make, and the message each one gets: what is wrong, and what to do about it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from typer.testing import CliRunner

from gadget_svm import Gadget, GadgetSVC, load_model
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
    Mistake("an algorithm is a class", _fit(algorithm=Gadget), TypeError, ("instance such as Gadget()",)),
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
    ("an engine is unknown", "train digits --engine spark", ("spark", "local, ray")),
    ("lam is negative", "train digits --lambda -1", ("--lambda", "-1")),
    ("no nodes", "train digits --nodes 0", ("--nodes", "0")),
    ("a data set is misspelt", "train adlut", ("adlut", "adult")),
    ("an option is misspelt", "train digits --node 3", ("--node", "--nodes")),
]


@pytest.mark.parametrize(("what", "command", "names"), COMMANDS, ids=[command[0] for command in COMMANDS])
def test_a_mistake_on_the_command_line(what, command, names):  # noqa: ARG001
    outcome = CliRunner().invoke(app, command.split())
    assert outcome.exit_code == 2
    assert all(name in outcome.output for name in names), outcome.output
