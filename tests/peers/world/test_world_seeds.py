"""Histories of real nodes with every fault: all that must hold does. A failing test says how to repeat its history.

`python -m benchmarks.peer_seeds A:B` runs many more.
"""

from dataclasses import replace

import pytest

from gadget_svm.peers.world import names, run
from gadget_svm.peers.world.simulate import network_plan

pytest.importorskip("google.protobuf")
SEEDS_PER_TEST, TESTS = 4, 2
REGRESSIONS = (
    ("torn-disk", 43, "a peer of three is killed, and again just before the faults stop"),
    ("crash-restart", 18, "a peer is killed again while it is down, another one is away longer than its death takes"),
    ("full-disk", 10, "a peer starts on a full disk, another one's disk is slow and then full"),
    ("resets", 1, "seven peers, and every two seconds a link breaks"),
    ("resets", 7, "six peers, and every two seconds a link breaks"),
    ("clock-jumps", 0, "two pauses overlap, and one of the paused clocks jumps"),
    ("clock-jumps", 3, "clocks jump by more than a death takes, one of them during a pause"),
    ("clock-jumps", 5, "clocks jump forward before the first certificate, and a time of day goes back"),
    ("partition", 1, "a short partition, then one that is longer than a death takes, along another line"),
    ("stop-and-return", 6, "a peer leaves again when it has hardly returned, and stays away"),
    ("crash-for-ever", 3, "three of five are lost, the first one before it has met the others"),
    ("crash-for-ever", 54, "the addresses that a peer was told belong to peers that are lost"),
    ("crash-for-ever", 59, "four of nine are lost, among them all that a peer was told of"),
    ("chaos", 132, "every heartbeat of a peer falls into a training step"),
    ("chaos", 174, "a push arrives late, after its edge was dropped and opened again"),
    ("chaos", 190, "a peer outbids a rumour after its links were opened"),
    ("calm", 101, "three peers, and nothing fails"),
    ("calm", 139, "three peers, and nothing fails: the certificate comes late"),
    ("three-classes", 202, "two pairs of peers settle on a scale each before they are linked with each other"),
    ("three-classes", 29, "a peer that has pushed learns anew on another scale, in the same incarnation"),
    ("scaled", 65, "two peers have learned together before they adopt another scale"),
    ("three-classes", 333, "two attempts at a certificate with the same number, after five that came too early"),
    (
        "certificate-kills",
        127,
        "a peer is killed when the certified model is on disk, but no snapshot that knows of it",
    ),
    ("same-name", 5, "the first process has links to all others when a second one of its name greets them"),
)
"""Histories that failed once, and what happens in them."""


def check(name: str, seed: int) -> None:
    result = run(name, seed)
    assert result.ok, f"{result.failure}\nrepeat it: {result.command}"


@pytest.mark.parametrize("part", range(TESTS))
@pytest.mark.parametrize("name", names())
def test_seeds(name, part):
    for seed in range(part * SEEDS_PER_TEST, (part + 1) * SEEDS_PER_TEST):
        check(name, seed)


@pytest.mark.parametrize(("name", "seed", "why"), REGRESSIONS, ids=lambda value: str(value).replace(" ", "-"))
def test_histories_that_failed_once(name, seed, why):  # noqa: ARG001 - shown with a failure
    check(name, seed)


def test_a_network_that_loses_half_of_its_messages_certifies_a_model():
    plan = replace(network_plan(12, loss=0.5, rows=40), faults_stop=1800.0)
    result = run(plan, 1)
    assert result.ok, result.failure


def test_real_nodes_repeat_their_history():
    first, again = (run("chaos", 3, trace=True) for _ in range(2))
    assert first.trace == again.trace
    assert (first.seconds, first.nbytes) == (again.seconds, again.nbytes)
