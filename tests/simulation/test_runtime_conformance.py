"""What every runtime does: the bits of the simulator with one block, for every algorithm."""

import numpy as np
import pytest

from gadget_svm.kernels import ThreadTeam
from support.ray_kit import own_ray
from support.runtimes import CASES, LAM, REAL_RAY, REFERENCE, RUNTIMES, problem_of, setup_of

STATE = ("s", "phi", "held", "w_sum", "iterates", "steps", "alive", "live_mask", "n")
ADVANCES = (1, 2, 5)
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES)


@pytest.fixture(scope="module")
def ray():
    with own_ray() as context:
        yield context


def snapshot(runtime):
    """Everything that a training loop reads of a runtime, by name."""
    arrays = {name: runtime.gather(name).copy() for name in STATE}
    arrays |= {name: np.array(getattr(runtime, name)()) for name in ("models", "weights", "sizes", "live_row_weights")}
    return arrays | {name: getattr(runtime, name) for name in ("t", "messages", "nbytes")} | {
        "exchanges": runtime.exchanges(), "lost": runtime.lost_mask(), "events": runtime.events(),
    }  # fmt: skip


def certificate(runtime):
    """A certificate's fields, or the reason that there is none."""
    if not runtime.run.certifiable:
        with pytest.raises(ValueError, match="use algorithm='pdmm'") as error:
            runtime.certify()
        return {"error": str(error.value)}
    found = runtime.certify()
    assert found.failure == ""
    names = ("model", "bounds", "duals", "owner", "n_rows", "n_nodes", "exchanges", "messages", "nbytes")
    return {name: getattr(found, name) for name in names}


def history(runtime):
    """Snapshots and certificates on the way, and after them: a certificate changes nothing but the counts."""
    try:
        seen = []
        for count in ADVANCES:
            runtime.advance(count)
            seen += [snapshot(runtime), certificate(runtime)]
        scores = [runtime.messages, runtime.nbytes]
        return [*seen, dict(enumerate(scores))]
    finally:
        runtime.close()


@pytest.fixture(scope="module")
def expected(toy):
    """The history of the simulator with one block, made once per case."""
    made = {}

    def of(case, kind, topology):
        key = case, kind, topology
        if key not in made:
            made[key] = history(REFERENCE(setup_of(toy, CASES[case], kind, topology)))
        return made[key]

    return of


def assert_conforms(make, toy, expected, case, kind="binary", topology="ring"):
    want = expected(case, kind, topology)
    assert want[-2].get("messages", 1) > 0
    found = history(make(setup_of(toy, CASES[case], kind, topology)))
    for at, (one, other) in enumerate(zip(want, found, strict=True)):
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name], err_msg=f"{name}, record {at}", strict=True)


@pytest.mark.parametrize("case", CASES)
@every_runtime
def test_same_bits(toy, expected, runtime, case):
    """State, models, messages, bytes and certificates, of three classes with weighted rows."""
    assert_conforms(RUNTIMES[runtime], toy, expected, case, "multi")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("runtime", ["by messages", "three actors"])
def test_same_bits_of_two_classes(toy, expected, runtime, case):
    assert_conforms(RUNTIMES[runtime], toy, expected, case)


@pytest.mark.parametrize(
    ("case", "topology"),
    [
        (case, topology)
        for case in ("gadget", "gadget, diffusion", "gadget, running-sum", "pdmm", "mom-dsvm")
        for topology in ("line", "star", "complete", "k-out:3")
        if topology != "k-out:3" or case.startswith("gadget")  # the others need undirected edges
    ],
)
@pytest.mark.parametrize("runtime", ["three blocks", "three actors", "an actor per node"])
def test_same_bits_on_other_graphs(toy, expected, runtime, case, topology):
    """On a line some blocks share no edge; on a directed graph one may send to another and never hear from it."""
    assert_conforms(RUNTIMES[runtime], toy, expected, case, topology=topology)


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("case", ["gadget", "pdmm"])
def test_same_bits_on_real_ray(toy, expected, case):
    assert_conforms(REAL_RAY, toy, expected, case, "multi")


@pytest.mark.parametrize("runtime", [name for name in RUNTIMES if "actor" in name])
def test_actors_evaluate_as_the_objective(toy, runtime):
    setup = setup_of(toy, CASES["gadget"], "multi")
    made = RUNTIMES[runtime](setup)
    models = np.random.default_rng(0).normal(size=(4, 3, 5))
    found, scores = made.evaluate(models, LAM), problem_of(toy, "multi").objective(LAM, ThreadTeam())(models)
    made.close()
    np.testing.assert_allclose(found.objective, scores.objective, rtol=1e-12)
    np.testing.assert_allclose(found.error, scores.error, rtol=1e-12)
