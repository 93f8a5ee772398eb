"""The simulation can fail: every planted bug is found within MAX_SEEDS histories. None of them is in the code."""

import pytest

from gadget_svm.peers.world import run
from support.planted_bugs import BUGS

pytest.importorskip("google.protobuf")
MAX_SEEDS = 500


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug_is_found(bug, monkeypatch):
    with monkeypatch.context() as patches:
        bug.plant(patches.setattr)
        results = (run(*history) for history in bug.histories(MAX_SEEDS))
        found = next((result for result in results if not result.ok), None)
    assert found is not None
    assert "planted_bugs.py" not in found.failure, "the bug is not planted well"
    assert run(found.scenario, found.seed).ok, "the history fails without the bug"


def test_there_are_enough_bugs():
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20
