"""One small reproduction, written once and shared by the tests of its parts."""

from types import SimpleNamespace

import pytest

from gadget_svm import load_dataset
from gadget_svm.reproduction import reproduce
from gadget_svm.reproduction.methods import Budget
from gadget_svm.reproduction.network_study import Setup
from gadget_svm.reproduction.page import write_all
from gadget_svm.reproduction.reproduce import PARTS, Reproduction


class SmallReproduction(Reproduction):
    """A reproduction whose only data set is built in, under a name of the paper's."""

    def budget(self, name):  # noqa: ARG002
        return Budget(200, 10, 1, 0.5)


def few_setups(quick, nodes):  # noqa: ARG001
    return [
        Setup(study, nodes=nodes, topology="ring", iterations=50, gossip=gossip)
        for study in ("topology", "size", "loss", "crash")
        for gossip in ("push-sum", "running-sum")
    ]


@pytest.fixture(scope="session")
def cancer():
    return load_dataset("breast-cancer")


@pytest.fixture(scope="session")
def small_run(cancer):
    """Makes small reproductions in a folder."""

    def make(out):
        run = SmallReproduction(out, nodes=4, trials=2, quick=True)
        run.__dict__["sets"] = {"adult": cancer}
        run.missing["gisette"] = "get it <there>"
        return run

    return make


@pytest.fixture(scope="session")
def written(small_run, tmp_path_factory):
    """A small reproduction, its folder, and everything that `write_all` wrote and returned."""
    out = tmp_path_factory.mktemp("reproduction")
    run = small_run(out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "setups", few_setups)
        made = write_all(run, PARTS, out / "docs" / "reproduction.md")
    return SimpleNamespace(run=run, out=out, **made)


@pytest.fixture
def rows(written):
    """The rows of all tables, for a test to change."""
    return {part: [dict(row) for row in table] for part, table in written.rows.items()}
