"""Histories of real nodes with every fault: all that must hold does. A failing test says how to repeat its history.

`python -m benchmarks.peer_seeds A:B` runs many more.
"""

import pytest

from gadget_svm.peers.world import names, run

pytest.importorskip("google.protobuf")
SEEDS_PER_TEST, TESTS = 4, 4
REGRESSIONS: tuple[tuple[str, int], ...] = (("calm", 101), ("calm", 139))
"""Histories that failed once."""


def check(name: str, seed: int) -> None:
    result = run(name, seed)
    assert result.ok, f"{result.failure}\nrepeat it: {result.command}"


@pytest.mark.parametrize("part", range(TESTS))
@pytest.mark.parametrize("name", names())
def test_seeds(name, part):
    for seed in range(part * SEEDS_PER_TEST, (part + 1) * SEEDS_PER_TEST):
        check(name, seed)


@pytest.mark.parametrize(("name", "seed"), REGRESSIONS)
def test_histories_that_failed_once(name, seed):
    check(name, seed)


def test_real_nodes_repeat_their_history():
    first, again = (run("chaos", 3, trace=True) for _ in range(2))
    assert first.trace == again.trace
    assert (first.seconds, first.nbytes) == (again.seconds, again.nbytes)
