"""A gossip protocol from outside the package: Push-Sum with vectors of 32 bits, and its own byte count."""

import numpy as np
import pytest

from gadget_svm import Gadget, GadgetSVC, average, build_network, load_model, save_model
from gadget_svm.algorithms import AveragedSgd
from gadget_svm.core.messages import HEADER_BYTES
from gadget_svm.gossip import PROTOCOLS, Gossip, absorb, draw_edges, make_messages
from support.entry_points import offer


class Float32PushSum(Gossip):
    """Sends half as float32. What rounding cuts off stays with the sender, so that no mass is lost."""

    name = "float32-push-sum"

    def round(self, block, time, since):
        edges = draw_edges(block)
        sends = edges >= 0
        half = (0.5 * block.s * sends[:, None]).astype(np.float32).astype(np.float64)
        weight = 0.5 * block.phi * sends
        block.s -= half
        block.phi -= weight
        messages = make_messages(block, time, None, edges, half, weight)
        size = HEADER_BYTES + 4 * half.shape[1] + 8  # the header, the vector and the weight
        delivery = yield messages._replace(packed_bytes=np.full(messages.n_messages, size))
        block.note_presence(delivery)
        absorb(block, delivery.messages, since)


def fitted(toy, algorithm, **settings):
    settings = {"max_iter": 60, "stopping": None, "lam": 0.05, "random_state": 0, **settings}
    return GadgetSVC(6, algorithm=algorithm, **settings).fit(toy.X, toy.y)


def test_it_averages():
    x = np.random.default_rng(0).normal(size=(8, 5))
    found = average(x, build_network("ring", 8), Float32PushSum(), 300, weights=np.arange(1.0, 9))
    np.testing.assert_allclose(found, np.tile(np.arange(1.0, 9) @ x / 36, (8, 1)), atol=1e-6)


@pytest.mark.parametrize("algorithm", [Gadget, AveragedSgd])
def test_it_learns_with_fewer_bytes(toy, algorithm):
    model, other = fitted(toy, algorithm(gossip=Float32PushSum())), fitted(toy, algorithm(gossip="push-sum"))
    assert model.gossip_ == "float32-push-sum"
    np.testing.assert_allclose(model.node_coef_, other.node_coef_, atol=1e-3)
    assert not np.array_equal(model.node_coef_, other.node_coef_)
    last, whole = model.history_[-1], other.history_[-1]
    assert last["messages"] == whole["messages"]
    assert whole["bytes"] - last["bytes"] == 4 * 6 * last["messages"]  # five features and the constant


def test_several_blocks_and_faults_change_nothing_that_should_stay(toy):
    algorithm = Gadget(gossip=Float32PushSum())
    one, three = (fitted(toy, algorithm, faults="bounce=0.3", engine_options={"blocks": b}) for b in (1, 3))
    np.testing.assert_array_equal(one.node_coef_, three.node_coef_)
    assert one.history_[-1]["bytes"] == three.history_[-1]["bytes"]


def test_an_entry_point_makes_it_known_by_name(toy, monkeypatch):
    offer(monkeypatch, PROTOCOLS, float32_push_sum=Float32PushSum)
    by_name, given = (fitted(toy, Gadget(gossip=each)) for each in ("float32-push-sum", Float32PushSum()))
    np.testing.assert_array_equal(by_name.node_coef_, given.node_coef_)


def test_a_model_file_leaves_the_object_out(toy, tmp_path):
    model = fitted(toy, Gadget(gossip=Float32PushSum(), local_steps=2))
    again = load_model(save_model(model, tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(again.predict(toy.X), model.predict(toy.X))
    assert again.algorithm.local_steps == 2


def test_what_is_no_protocol_is_refused(toy):
    for wrong in (Float32PushSum, 3):
        with pytest.raises(TypeError, match=r"derives from gadget_svm\.gossip\.Gossip"):
            fitted(toy, Gadget(gossip=wrong))
