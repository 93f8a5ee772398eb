"""The budget of a node: blocks of rounds, limits over several studies, and ledgers that are missing."""

from dataclasses import replace

import pytest

pytest.importorskip("dp_accounting")

from gadget_svm.peers.events import Spend
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.spending import Spending
from gadget_svm.peers.storage.ledger import Ledger
from gadget_svm.peers.write_schedule import WriteSchedule
from gadget_svm.study.study import Study

STUDY = Study(
    "s", 0.1, 4, (-1.0, 1.0), "private", epsilon=1.0, delta=1e-6, clip=1.0, rounds=50, step_size=2.0, min_sites=2
)  # fmt: skip


def spending(ledger=None, has_state=False, study=STUDY, **limits):
    out = Outbox()
    found = Spending(NodeSettings("a", **limits), study, WriteSchedule(1.0, 1.0, out))
    found.begin(ledger, has_state)
    return found, out


def written(out):
    return [effect.ledger for effect in out.take() if isinstance(effect, Spend)]


def whole(study=STUDY):
    """The ledger after all rounds of a study."""
    found, out = spending(study=study)
    while written(out):
        found.saved()
        found.reserve()
    return found.ledger


def test_rounds_are_reserved_in_blocks_when_they_are_on_disk():
    found, out = spending()
    [first] = written(out)
    assert first.rounds(STUDY.digest.hex()) == 0
    found.saved()
    found.reserve()
    found.reserve()  # one write at a time
    [second] = written(out)
    assert (found.rounds, second.rounds(STUDY.digest.hex())) == (0, 2)
    found.failed()
    found.reserve()
    assert written(out) == [second]
    found.saved()
    assert found.rounds == 2
    assert 0.0 < found.status()["epsilon_spent"] < 1.0


def test_the_whole_plan_costs_epsilon_and_no_more_rounds_are_reserved():
    found, out = spending(whole())
    assert found.rounds == 50
    assert found.status()["epsilon_spent"] == pytest.approx(1.0, rel=1e-6)
    found.reserve()
    assert written(out) == []


def test_a_missing_ledger_beside_state_is_an_error_that_names_the_fix():
    with pytest.raises(ValueError, match="put the ledger back"):
        spending(None, has_state=True)


def test_a_limit_counts_all_studies():
    second = replace(STUDY, name="another", lam=0.2)
    spending(whole(), study=second, epsilon_limit=2.0)
    with pytest.raises(ValueError, match=r"would spend epsilon 1\.4.* above \[privacy\] epsilon_limit 1\.2"):
        spending(whole(), study=second, epsilon_limit=1.2)
    with pytest.raises(ValueError, match="epsilon_limit"):
        spending(epsilon_limit=0.9)
    found, _ = spending(whole(), epsilon_limit=1.0)
    assert found.status()["epsilon_spent_in_all_studies"] == pytest.approx(1.0, rel=1e-6)
    both = spending(whole(), study=second)[0].ledger
    assert both == Ledger(whole().studies)
