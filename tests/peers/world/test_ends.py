"""Peers that run until certified: nobody waits for confirmations that no other peer can bring any more."""

from dataclasses import replace

import pytest

from gadget_svm.peers.world.scenario import load
from gadget_svm.peers.world.simulate import run

LINGER_S = 1_000.0


@pytest.mark.parametrize("seed", range(5))
def test_the_leaves_of_a_star_end_soon_after_the_site_in_the_middle(seed):
    """One site accepts connections: the others hear of each other by it only, and it may end first."""
    plan = replace(
        load("finish"), peers=(5, 5), outbound_only=(1.0, 1.0), settings={"linger": LINGER_S}, settle=LINGER_S / 2
    )
    result = run(plan, seed)
    assert result.ok, f"{result.failure}\n{result.command}"
