"""The model files of peers: the same document gives the same bytes, and `load_model` reads what the file says."""

import numpy as np
import pytest

from gadget_svm import load_model, save_model
from gadget_svm.peers.process.model_export import write_model
from gadget_svm.peers.storage.snapshot import ModelDocument
from gadget_svm.study.study import Study

STUDY = Study("tumours", 1e-3, 3, (1.0, -1.0), columns=("age", "size", "dose"), gap=0.02)
ABOUT = {
    "certificate": "7-north", "time": 1.5e9, "ticks": 90, "gap_bound": 0.004, "rows": 30.0, "study": "tumours",
    "study_digest": STUDY.digest.hex(), "sites": [["north", 3, 10.0], ["south", 4, 20.0]],
}  # fmt: skip
X = np.random.default_rng(0).normal(size=(20, 3))


def document(kind="certified", weights=((1.0, -2.0, 0.5, 0.25),), **about):
    divisor, shift = np.array([1.0, 2.0, 4.0]), np.array([0.0, 1.0, 0.0])
    return ModelDocument(kind, np.array(weights), divisor, shift, ABOUT | about)


def test_the_same_document_gives_the_same_bytes(tmp_path):
    first = write_model(tmp_path / "north" / "model.safetensors", document(), STUDY)
    second = write_model(tmp_path / "south" / "model.safetensors", document(), STUDY)
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in first.parent.iterdir()] == ["model.safetensors"]


def test_the_certificate_is_read_with_the_model(tmp_path):
    model = load_model(write_model(tmp_path / "m.safetensors", document(), STUDY))
    assert model.gap_bound_ == 0.004
    assert model.sites_ == ["north", "south"]
    assert (model.converged_, model.n_iter_, model.lam_, model.tol_) == (True, 90, 1e-3, 0.02)
    assert model.study_ == {"kind": "certified", **ABOUT}
    assert model.feature_names_in_.tolist() == ["age", "size", "dose"]
    np.testing.assert_array_equal(model.node("south").coef_, model.coef_)
    again = load_model(save_model(model, tmp_path / "again.safetensors"))
    assert again.study_ == model.study_


def test_it_takes_unscaled_features_and_answers_with_the_class_of_the_study(tmp_path):
    model = load_model(write_model(tmp_path / "m.safetensors", document(), STUDY))
    scores = (X - [0, 1, 0]) / [1, 2, 4] @ [1.0, -2.0, 0.5] + 0.25
    del model.feature_names_in_
    assert model.predict(X).tolist() == np.where(scores > 0, -1, 1).tolist()  # the second class is the positive one


def test_several_classes(tmp_path):
    study = Study("three", 1e-3, 3, ("b", "c", "a"), intercept=False)
    weights = np.random.default_rng(1).normal(size=(3, 3))
    path = write_model(
        tmp_path / "m.safetensors", ModelDocument("current", weights, np.ones(3), np.zeros(3), {}), study
    )
    model = load_model(path)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.predict(X).tolist() == np.array(["b", "c", "a"])[(X @ weights.T).argmax(1)].tolist()


def test_a_model_of_a_partition_is_written_beside_the_certified_one(tmp_path):
    whole = write_model(tmp_path / "model.safetensors", document(), STUDY).read_bytes()
    part = write_model(tmp_path / "model.safetensors", document("partition", sites=ABOUT["sites"][:1]), STUDY)
    assert part == tmp_path / "model.partition.safetensors"
    assert (tmp_path / "model.safetensors").read_bytes() == whole
    assert load_model(part).certificate_note_ == "covers 1 sites, not all of the study"


def test_a_failed_write_leaves_the_earlier_file(tmp_path, monkeypatch):
    path = write_model(tmp_path / "model.safetensors", document(), STUDY)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_model(path, document(time=2e9), STUDY)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["model.safetensors"]
