"""What every fault of the registry does, alone and with others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gadget_svm import GadgetSVC
from gadget_svm.core.messages import Delivery
from gadget_svm.faults import (
    FAULTS,
    Bounce,
    Churn,
    Constant,
    Crash,
    Delay,
    FalseCounts,
    Fault,
    Flapping,
    LittleIsEnough,
    Loss,
    Partition,
    Poison,
    SignFlip,
    Slow,
    Zeros,
    make_faults,
)  # fmt: skip
from gadget_svm.gossip import PROTOCOLS
from gadget_svm.topologies import build
from support.gossip_blocks import Ledger, gossiped, mass, some_block, with_faults
from support.strategies import networks

CASES = {
    "loss": Loss(0.5),
    "bounce": Bounce(0.4),
    "delay": Delay(3),
    "partition": Partition(at=2, heal=12),
    "partition, lost": Partition(at=2, heal=9, lost=True),
    "crash": Crash(nodes=[1], at=3, back=9),
    "crash for ever": Crash(nodes=[0], at=4),
    "churn": Churn(leave=0.3, join=0.5),
    "flapping": Flapping(nodes=[1], period=2),
    "slow": Slow(every=3, nodes=[0, 1]),
    "async": make_faults("async=0.5")[0],
    "sign-flip": SignFlip(nodes=[1]),
    "constant": Constant(nodes=[1], value=10.0),
    "zeros": Zeros(nodes=0.3),
    "little-is-enough": LittleIsEnough(nodes=0.3, z=1.5),
    "false-counts": FalseCounts(nodes=[0, 1]),
}
POISONS = [case for case, fault in CASES.items() if isinstance(fault, Poison)]
DRAW_NOTHING = ("partition", "partition, lost", "crash", "crash for ever", "flapping", "slow", *POISONS)
HOLDS_MESSAGES = ("delay", "slow", "async")
KEPT = [
    (name, case)
    for name, make in PROTOCOLS.items()
    for case, fault in CASES.items()
    if (make().loss_proof or not fault.loses) and (make().weighted or case not in HOLDS_MESSAGES)
    if case not in POISONS
]
every_case = pytest.mark.parametrize("case", CASES)
every_fault = pytest.mark.parametrize("name", FAULTS)


@every_fault
def test_the_registry_is_covered_and_a_wrong_value_names_the_right_ones(name):
    assert name in CASES
    assert isinstance(CASES[name], Fault)
    assert isinstance(CASES[name].loses, bool)
    with pytest.raises(ValueError, match=f"fault '{name}' needs other values: it takes"):
        make_faults({name: {"nonsense": 1}})


@pytest.mark.parametrize(("protocol", "case"), KEPT)
@settings(max_examples=10)
@given(network=networks(least=2), seed=st.integers(0, 2**31), steps=st.integers(1, 20))
def test_mass_is_kept_as_declared(protocol, case, network, seed, steps):
    """Counting what waits or is in flight: always, unless the fault loses messages and the protocol is not loss-proof.

    Pairwise averaging keeps the mean unless an answer is lost or late.
    """
    gossip, block = PROTOCOLS[protocol](), some_block(network, 2, seed)
    weight = block.n if gossip.weighted else np.ones(network.n)
    wanted = weight @ block.flat
    ledger = Ledger(with_faults([CASES[case]], network.n, seed))
    for after in gossiped(gossip, block, steps, ledger):
        s, phi = mass(after)
        in_flight = ledger.vector if gossip.conserves_mass else 0.0
        np.testing.assert_allclose(s + in_flight, wanted, atol=1e-8)
        if gossip.conserves_mass:
            assert phi + ledger.weight == pytest.approx(weight.sum(), rel=1e-12)
            assert ledger.weight == 0 or case in HOLDS_MESSAGES


@every_case
def test_fates_are_seeded_and_do_not_depend_on_the_order_of_messages(case):
    """So that blocks and runtimes may group messages in any way."""

    def delivered(seed, turn):
        exchange, seen = with_faults([CASES[case]], 6, seed), []

        def shuffled(messages):
            order = turn.permutation(messages.n_messages) if turn else np.arange(messages.n_messages)
            delivery = exchange(messages.select(order))
            found = delivery.messages
            keys = np.lexsort((found.seq, found.receiver, found.sender))
            seen.append([found.sender[keys].tolist(), found.receiver[keys].tolist(), found.seq[keys].tolist()])
            return delivery

        list(gossiped(PROTOCOLS["diffusion"](), some_block(build("complete", 6), 1, 0), 15, shuffled))
        return seen

    one = delivered(1, None)
    assert one == delivered(1, np.random.default_rng(0))
    if case not in DRAW_NOTHING:
        assert one != delivered(2, None)


@every_case
def test_it_composes(case):
    """Before and after another fault; the sum of all mass is still known."""
    for faults in ([CASES[case], Bounce(0.2)], [Bounce(0.2), CASES[case]], [CASES[case], CASES[case]]):
        block = some_block(build("complete", 6), 2, 3)
        wanted, ledger = block.n @ block.flat, Ledger(with_faults(faults, 6, 2))
        for after in gossiped(PROTOCOLS["diffusion"](), block, 15, ledger):
            np.testing.assert_allclose(mass(after)[0] + ledger.vector, wanted, atol=1e-8)


def test_without_faults_the_exchange_is_the_plain_one():
    assert with_faults([], 3) is Delivery


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
@every_case
def test_learning_goes_on(toy, case, algorithm):
    settings = {"max_iter": 200, "stopping": None, "lam": 0.05, "random_state": 0, "algorithm": algorithm}
    one, two = (
        GadgetSVC(4, faults=[CASES[case]], engine_options={"blocks": b}, **settings).fit(toy.X, toy.y) for b in (1, 2)
    )
    np.testing.assert_array_equal(one.node_coef_, two.node_coef_)
    assert one.history_[-1]["bytes"] == two.history_[-1]["bytes"]
    if case not in POISONS:  # the rows of others do not help against a lie
        assert np.isfinite(one.node_coef_).all()
        assert one.score(toy.X, toy.y) > 0.75
