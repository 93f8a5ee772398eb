"""The simulation can fail: every planted bug is found within MAX_SEEDS histories. None of them is in the code."""

import pytest

from gadget_svm.peers.world import run
from support.planted_bugs import BUGS

pytest.importorskip("google.protobuf")
MAX_SEEDS = 500


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug_is_found(bug, monkeypatch):
    bug.plant(monkeypatch.setattr)
    assert any(not run(scenario, seed).ok for scenario, seed in bug.histories(MAX_SEEDS))


def test_there_are_enough_bugs():
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12
