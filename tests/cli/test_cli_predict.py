"""`gadget predict`: rows and columns that fit a model, labels that may be missing, and its files."""

import json
import os

import numpy as np
import pytest

from gadget_svm import load_model, save_model
from support.cli_kit import gadget


def test_predict_round_trip(trained, test_file, tmp_path):
    from gadget_svm.data import read_table

    answers = tmp_path / "new" / "answers.txt"
    result = gadget("predict", trained[1], test_file, "--out", answers)
    assert result.exit_code == 0, result.stderr
    X, y = read_table(test_file)
    model = load_model(trained[1] / "model.safetensors")
    assert [int(line) for line in answers.read_text().split()] == model.predict(X).tolist()
    assert f"accuracy {100 * model.score(X, y):.2f} %" in result.stdout
    piped = gadget("predict", trained[1] / "model.safetensors", test_file, "--node", 2, "--out", "-")
    assert [int(line) for line in piped.stdout.split()] == model.node(2).predict(X).tolist()
    assert "node 2" in piped.stderr


def test_predict_as_json(trained, test_file, tmp_path):
    _, out = trained
    plain = gadget("predict", out, test_file, "--out", "-").stdout.split()
    found = json.loads(gadget("predict", out, test_file, "--json").stdout)
    assert [str(answer) for answer in found["predictions"]] == plain
    assert (found["rows"], found["model"], found["unknown_labels"]) == (50, "the network average", [])
    assert f"{100 * found['accuracy']:.2f} %" in gadget("predict", out, test_file).stdout
    written = json.loads(gadget("predict", out, test_file, "--json", "--out", tmp_path / "p.txt").stdout)
    assert written["out"] == str(tmp_path / "p.txt")
    assert "predictions" not in written
    assert (tmp_path / "p.txt").read_text().split() == plain
    unlabelled = json.loads(gadget("predict", out, test_file, "--json", "--no-label").stdout)
    assert (unlabelled["accuracy"], unlabelled["predictions"]) == (None, found["predictions"])
    both = gadget("predict", out, test_file, "--json", "--out", "-")
    assert both.exit_code == 2
    assert "both write to stdout" in both.stderr


def test_predict_width(trained, tmp_path):
    narrow, wide = tmp_path / "narrow.svm", tmp_path / "wide.svm"
    narrow.write_text("1 1:2.0\n-1 1:-2.0\n")
    wide.write_text("1 1:2.0 9:1\n-1 1:-2.0\n")
    assert "accuracy 100.00 % of 2 rows" in gadget("predict", trained[1], narrow).stdout
    refused = gadget("predict", trained[1], wide)
    assert refused.exit_code == 2
    assert "9 features" in refused.stderr
    assert "trained on 6" in refused.stderr


def test_predict_unknown_labels(trained, tmp_path):
    (tmp_path / "cats.svm").write_text("7 1:2.0\n8 1:-2.0\n")
    result = gadget("predict", trained[1], tmp_path / "cats.svm")
    assert "no accuracy" in result.stdout
    assert "7, 8" in result.stdout
    assert gadget("predict", trained[1], tmp_path / "cats.svm", "--node", 4).exit_code == 2


FEATURES = ("a", "b", "c", "d", "e", "f")


@pytest.fixture
def named_model(trained, tmp_path):
    """The trained model, of columns that have names."""
    model = load_model(trained[1] / "model.safetensors")
    model.feature_names_in_ = np.array(FEATURES, dtype=object)
    save_model(model, tmp_path / "named.safetensors")
    return tmp_path / "named.safetensors"


UNLABELLED = {
    "names.csv": ",".join(FEATURES) + "\n2,0,0,0,0,0\n-2,0,0,0,0,1\n",
    "another-order-and-more.csv": "id,f,e,d,c,b,a\n7,0,0,0,0,0,2\n8,1,0,0,0,0,-2\n",
    "plain.csv": "2,0,0,0,0,0\n-2,0,0,0,0,1\n",
}


@pytest.mark.parametrize("name", UNLABELLED)
@pytest.mark.parametrize("told", [(), ("--no-label",)])
def test_predict_unlabelled(named_model, tmp_path, name, told):
    data = tmp_path / name
    data.write_text(UNLABELLED[name])
    result = gadget("predict", named_model, data, "--out", "-", *told)
    assert result.exit_code == 0, result.stderr
    model = load_model(named_model)
    del model.feature_names_in_
    rows = np.array([[2.0, 0, 0, 0, 0, 0], [-2.0, 0, 0, 0, 0, 1]])
    assert [int(line) for line in result.stdout.split()] == model.predict(rows).tolist()
    assert "2 rows predicted by the network average" in result.stderr


def test_predict_no_label_option(trained, tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([[2.0, 0, 0, 0, 0, 0], [-2.0, 0, 0, 0, 0, 1]]))
    (tmp_path / "t.svm").write_text("0 1:2\n0 1:-2 6:1\n")
    answers = [gadget("predict", trained[1], tmp_path / f, "--no-label", "--out", "-") for f in ("t.npz", "t.svm")]
    assert [one.exit_code for one in answers] == [0, 0]
    assert answers[0].stdout == answers[1].stdout
    assert "y" in gadget("predict", trained[1], tmp_path / "t.npz").stderr


def test_predict_wrong_table(named_model, tmp_path):
    (tmp_path / "wrong.csv").write_text("a,b,c,d,e,other,label\n1,2,3,4,5,6,cat\n")
    refused = gadget("predict", named_model, tmp_path / "wrong.csv")
    assert refused.exit_code == 2
    assert "no column 'f'" in refused.stderr
    both = gadget("predict", named_model, tmp_path / "wrong.csv", "--no-label", "--label", "label")
    assert both.exit_code == 2
    assert "leave out --label" in both.stderr


def test_predict_columns_by_name(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)) * [1.0, 0.1, 0.1]
    y = np.where(X[:, 0] > 0, "yes", "no")
    lines = [f"{a},{b},{c},{label}" for (a, b, c), label in zip(X, y, strict=True)]
    turned = [f"{c},{label},{b},{a}" for (a, b, c), label in zip(X, y, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,label", *lines]) + "\n")
    (tmp_path / "turned.csv").write_text("\n".join(["c,label,b,a", *turned]) + "\n")
    trained = gadget("train", tmp_path / "rows.csv", "--nodes", 3, "--out", tmp_path / "out", "--quiet")
    assert trained.exit_code == 0, trained.output
    said = [
        json.loads(gadget("predict", tmp_path / "out", tmp_path / f, "--json").stdout)
        for f in ("rows.csv", "turned.csv")
    ]
    assert said[0]["accuracy"] == said[1]["accuracy"] > 0.9


def test_out_link_pipe_folder(trained, test_file, tmp_path):
    target, link = tmp_path / "answers.txt", tmp_path / "link.txt"
    target.write_text("")
    count = len(test_file.read_text().splitlines())
    link.symlink_to(target)
    assert gadget("predict", trained[1], test_file, "--out", link).exit_code == 0
    assert link.is_symlink()
    assert len(target.read_text().split()) == count
    found = gadget("predict", trained[1], test_file, "--out", tmp_path)
    assert (found.exit_code, "is a folder: name a file" in found.stderr) == (2, True)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert gadget("predict", trained[1], test_file, "--out", pipe).exit_code == 0
        assert len(os.read(reader, 10_000).split()) == count
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_predict_guessed_label(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    y = (X[:, 0] > 0).astype(int)
    np.savetxt(tmp_path / "last.csv", np.c_[X, y], delimiter=",", fmt="%g")
    np.savetxt(tmp_path / "first.csv", np.c_[y, X], delimiter=",", fmt="%g")
    assert gadget("train", tmp_path / "last.csv", "--out", tmp_path / "model", "-n", 3).exit_code == 0
    found = gadget("predict", tmp_path / "model", tmp_path / "first.csv")
    assert found.exit_code == 2
    assert "--label 0 says that the label is in front" in found.stderr
    assert "accuracy" in gadget("predict", tmp_path / "model", tmp_path / "first.csv", "--label", 0).stdout
