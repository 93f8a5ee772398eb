"""Model files: what was saved comes back, what is damaged says so, and nothing in them is ever executed."""

import json
import pickle
import warnings
from importlib.metadata import EntryPoint

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from gadget_svm import BaseStoppingRule, Gadget, GadgetSVC, NodeRecords, load_model, save_model
from gadget_svm.algorithms import ALGORITHMS
from gadget_svm.core.state_file import encode_state
from gadget_svm.estimator.model_file import OPTIONAL_ARRAYS, SCALARS

QUICK = {"max_iter": 20, "stopping": None, "random_state": 0}
LABELS = {
    "integers": lambda toy: toy.y + 5,
    "three integers": lambda toy: toy.three - 1,
    "texts": lambda toy: np.array(["ham", "spam"])[toy.y],
    "objects": lambda toy: np.array(["a", "b", "ç"], dtype=object)[toy.three],
    "truth": lambda toy: toy.y.astype(bool),
    "reals": lambda toy: toy.y * 2.0 - 1,
}


@pytest.mark.parametrize("labels", sorted(LABELS))
@pytest.mark.parametrize("intercept", [True, False])
def test_what_was_saved_comes_back(toy, tmp_path, labels, intercept):
    y = LABELS[labels](toy)
    model = GadgetSVC(4, lam=0.02, topology="ring", fit_intercept=intercept, **QUICK).fit(toy.X, y)
    path = save_model(model, tmp_path / "deep" / "model.safetensors")
    again = load_model(path)
    for name in ("coef_", "intercept_", "node_coef_", "node_intercept_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name), strict=True)
    np.testing.assert_array_equal(again.predict(toy.X), model.predict(toy.X))
    assert again.classes_.tolist() == model.classes_.tolist()
    assert type(again.classes_.tolist()[0]) is type(model.classes_.tolist()[0])
    assert (again.n_iter_, again.converged_, again.n_features_in_) == (20, False, 5)
    assert (again.lam, again.topology, again.n_nodes) == (0.02, "ring", 4)
    np.testing.assert_array_equal(again.node(2).predict(toy.X), model.node(2).predict(toy.X))


def test_a_loaded_model_can_be_saved_refitted_and_asked_for_nodes(toy, tmp_path):
    model = GadgetSVC(4, **QUICK).fit(toy.X, toy.y)
    again = load_model(save_model(load_model(save_model(model, tmp_path / "a")), tmp_path / "b"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    np.testing.assert_array_equal(again.fit(toy.X, toy.y).coef_, model.coef_)
    save_model(model.node(1), tmp_path / "c")
    np.testing.assert_array_equal(load_model(tmp_path / "c").coef_[0], model.node_coef_[1])


@pytest.mark.parametrize("settings", [{"C": 0.5, "tol": 0.5}, {"lam": 0.01, "max_iter": 3}], ids=["certified", "ended"])
def test_how_the_training_ended_is_kept(toy, tmp_path, settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GadgetSVC(3, random_state=0, **settings).fit(toy.X, toy.three)
    model.certificate_note_ = "nodes 1 and 2 are not in reach"  # as after a failed certificate
    again = load_model(save_model(model, tmp_path / "m"))
    for name in SCALARS:
        assert getattr(again, name) == getattr(model, name), name
    assert model.stopped_by_ == ("converged" if "C" in settings else "max_iter")
    for name in OPTIONAL_ARRAYS:
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))


def test_seeds_are_kept_and_objects_left_out(toy, tmp_path):
    class After(BaseStoppingRule):
        def fires(self, runtime, objective):  # noqa: ARG002
            return True

    params = {"topology_seed": 3, "partition_seed": np.int64(4), "random_state": 0}
    model = GadgetSVC(3, stopping=After(), observers=[NodeRecords()], **params).fit(toy.X, toy.y)
    again = load_model(save_model(model, tmp_path / "m"))
    assert {name: getattr(again, name) for name in params} == params
    assert (again.stopping, again.observers, again.stopping_) == ("auto", None, "After")
    np.testing.assert_array_equal(again.predict(toy.X), model.predict(toy.X))


def test_a_broken_package_of_others_is_no_obstacle(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(ALGORITHMS, "_outside", {"broken": EntryPoint("broken", "math:nothing", ALGORITHMS.group)})
    again = load_model(
        save_model(GadgetSVC(3, algorithm=Gadget(batch_size=2), **QUICK).fit(toy.X, toy.y), tmp_path / "m")
    )
    assert again.algorithm.batch_size == 2


def test_a_loaded_model_does_not_pretend_to_go_on_learning(toy, tmp_path):
    again = load_model(save_model(GadgetSVC(4, **QUICK).fit(toy.X, toy.y), tmp_path / "m"))
    with pytest.raises(ValueError, match="cannot be trained further"):
        again.partial_fit(toy.X, toy.y)


def test_feature_names_and_sites_are_kept(toy, tmp_path):
    frame = pd.DataFrame(toy.X, columns=list("abcde"))
    model = GadgetSVC(**QUICK).fit(frame, toy.y, sites=np.array(["x", "y", "z"])[toy.sites])
    again = load_model(save_model(model, tmp_path / "m"))
    assert again.feature_names_in_.tolist() == list("abcde")
    assert again.sites_ == ["x", "y", "z"]
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[list("edcba")])


def test_settings_come_back_and_a_graph_given_as_such_is_left_out(toy, tmp_path):
    algorithm = Gadget(local_steps=np.int64(3), gossip="diffusion")
    model = GadgetSVC(np.int64(4), nx.cycle_graph(4), algorithm=algorithm, **QUICK).fit(toy.X, toy.y)
    again = load_model(save_model(model, tmp_path / "m"))
    assert again.algorithm.get_params() == algorithm.get_params()
    assert (again.n_nodes, again.topology) == (4, GadgetSVC().topology)
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_no_pickle_is_written_or_read(toy, tmp_path, monkeypatch):
    model = GadgetSVC(4, **QUICK).fit(toy.X, toy.y)

    def refuse(*_args, **_kwargs):
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(np, "load", refuse)
    path = save_model(model, tmp_path / "m")
    np.testing.assert_array_equal(load_model(path).coef_, model.coef_)
    size = int.from_bytes(path.read_bytes()[:8], "little")
    assert json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]  # a plain header that anyone can read


def test_a_half_written_file_never_replaces_a_good_one(toy, tmp_path, monkeypatch):
    model = GadgetSVC(4, **QUICK).fit(toy.X, toy.y)
    path = save_model(model, tmp_path / "m")
    good = path.read_bytes()

    def disk_full(_descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(OSError, match="no space left"):
        save_model(GadgetSVC(4, **QUICK).fit(toy.X, 1 - toy.y), path)
    assert path.read_bytes() == good
    assert [each.name for each in tmp_path.iterdir()] == ["m"]  # and leaves nothing behind


def test_a_truncated_or_garbled_file_is_a_value_error(toy, tmp_path):
    path = save_model(GadgetSVC(4, **QUICK).fit(toy.X, toy.y), tmp_path / "m")
    whole = path.read_bytes()
    broken = [whole[:cut] for cut in (0, 4, 8, 50, len(whole) // 2, len(whole) - 1)]
    broken += [b"not a model at all", bytes(1000), whole[:8] + b"x" * (len(whole) - 8), b"\xff" * 64]
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"truncated, damaged or not a model file"):
            load_model(path)


def model_file(version=2, kind="model", **about):
    """A file of this format with other content."""
    names = dict.fromkeys((*SCALARS, "algorithm"))
    whole = {**names, "params": {}, "classes": [0, 1], "classes_dtype": "int64", "sites": [0], "feature_names": []}
    arrays = {"coef_": (1, 2), "intercept_": (1,), "node_coef_": (3, 2), "node_intercept_": (3,)}
    return encode_state(kind, version, {name: np.zeros(shape) for name, shape in arrays.items()}, {**whole, **about})


def test_model_file_is_as_in_these_tests(tmp_path):
    (tmp_path / "m").write_bytes(model_file())
    assert load_model(tmp_path / "m").classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("content", "fix"),
    [
        (save({"weight": np.zeros(3)}), "not a model file"),
        (save({"weight": np.zeros(3)}, metadata={"framework": "another"}), "not a model file"),
        (save({"coef_": np.zeros((1, 2))}, metadata={"gadget": '{"format": "gadget-svm/1"}'}), "train the model again"),
        (model_file(version=99), "version 99 .*train the model again"),
        (model_file(kind="checkpoint"), "not a model file"),
        (model_file(params=3), "lacks a part"),
        (model_file(params={"unknown": 3}), "lacks a part"),
        (model_file(classes=None), "lacks a part|copy"),
        (model_file(algorithm={"kind": "os.system", "params": {}}), "unknown algorithm in the model file"),
        (model_file() + b"more", "truncated, damaged"),
    ],
    ids=[
        "no metadata", "another program", "older format", "later format", "another kind", "odd parameters",
        "unknown parameter", "no classes", "unknown algorithm", "more bytes",
    ],
)  # fmt: skip
def test_a_foreign_file_is_refused(tmp_path, content, fix):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ValueError, match=fix):
        load_model(tmp_path / "m")


def test_a_changed_bit_is_found(toy, tmp_path):
    path = save_model(GadgetSVC(4, **QUICK).fit(toy.X, toy.y), tmp_path / "m")
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"digest does not match.*copy it again"):
        load_model(path)


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="train one with 'gadget train"):
        load_model(tmp_path / "m")
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path)


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        save_model(GadgetSVC(), tmp_path / "m")
    assert not list(tmp_path.iterdir())
