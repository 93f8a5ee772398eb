"""`gadget predict` with the model file of a peer."""

import json
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from gadget_svm.cli.app import app
from gadget_svm.cli.predict_run import coverage
from gadget_svm.peers.process.model_export import write_model
from gadget_svm.peers.storage.snapshot import ModelDocument
from gadget_svm.study.study import Study

NAMES = ("age", "size", "dose")
STUDY = Study("tumours", 0.01, 3, (-1.0, 1.0), intercept=False, columns=NAMES)


def gadget(*words):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return CliRunner().invoke(app, [str(word) for word in words], prog_name="gadget")


@pytest.fixture
def model(tmp_path):
    """The sign of age - size."""
    about = {"gap_bound": 0.004, "ticks": 9, "study": "tumours", "sites": [["north", 1, 10.0], ["south", 1, 20.0]]}
    weights = np.array([[1.0, -1.0, 0.0]])
    document = ModelDocument("certified", weights, np.ones(3), np.zeros(3), about)
    return write_model(tmp_path / "m.safetensors", document, STUDY)


def table(path, columns, *lines):
    path.write_text("\n".join([",".join(columns), *lines]) + "\n")
    return path


def test_a_table_is_predicted_without_a_warning_and_the_model_is_named(model, tmp_path):
    """scikit-learn would warn that a matrix has no feature names; the file has, and they were compared."""
    data = table(tmp_path / "t.csv", (*NAMES, "label"), "3,1,5,1", "1,3,5,-1", "1,2,0,1")
    found = gadget("predict", model, data, "--label", "label", "--out", tmp_path / "answers")
    assert found.exit_code == 0, found.output
    assert found.output == (
        "accuracy 66.67 % of 3 rows by the certified model of 2 sites of the study tumours "
        "(gap at most 0.4 %, 30 rows: north, south)\n"
    )
    assert (tmp_path / "answers").read_text() == "1\n-1\n-1\n"
    assert gadget("predict", model, data, "--label", "label", "--node", "north").output.endswith("by node north\n")


def test_json_has_the_certificate_and_a_model_without_one_has_none(model, tmp_path):
    data = table(tmp_path / "t.csv", (*NAMES, "label"), "3,1,5,1", "1,3,5,-1")
    found = json.loads(gadget("predict", model, data, "--label", "label", "--json").stdout)
    assert found["certified"] == {"gap_bound": 0.004, "rows": 30, "sites": ["north", "south"], "study": "tumours"}
    document = ModelDocument("current", np.ones((1, 3)), np.ones(3), np.zeros(3), {"study": "tumours", "name": "north"})
    current = write_model(tmp_path / "current.safetensors", document, STUDY)
    assert "certified" not in json.loads(gadget("predict", current, data, "--label", "label", "--json").stdout)
    assert gadget("predict", current, data, "--label", "label").output.endswith("current model of the study tumours\n")


def test_many_sites_are_cut_and_a_bound_is_never_rounded_down():
    certified = {"gap_bound": 0.0016741, "rows": 1469, "sites": [f"s{i}" for i in range(12)]}
    assert coverage(certified) == ("gap at most 0.168 %, 1,469 rows: s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more")


def test_columns_are_found_by_their_names(model, tmp_path):
    data = table(tmp_path / "t.csv", ("dose", "label", "size", "age"), "5,1,1,3", "5,-1,3,1")
    assert "accuracy 100.00 % of 2 rows" in gadget("predict", model, data, "--label", "label").output


def test_a_column_that_the_model_wants_and_the_file_lacks_is_named(model, tmp_path):
    data = table(tmp_path / "t.csv", ("age", "weight", "dose", "label"), "3,1,5,1", "1,3,5,-1")
    found = gadget("predict", model, data, "--label", "label")
    assert found.exit_code == 2
    assert "has no column 'size', which the model was trained on" in found.output


def test_a_file_without_names_is_taken_as_it_is(model, tmp_path):
    (tmp_path / "t.svm").write_text("1 1:3 2:1 3:5\n-1 1:1 2:3\n")
    assert "accuracy 100.00 % of 2 rows by the certified model" in gadget("predict", model, tmp_path / "t.svm").output


def test_the_average_of_several_nodes_is_still_named_so(tmp_path):
    out = tmp_path / "out"
    made = gadget("train", "breast-cancer", "--nodes", "3", "--max-iter", "5", "--out", out, "--quiet")
    assert made.exit_code in (0, 1), made.output
    assert gadget("predict", out, "breast-cancer").output.endswith("by the network average\n")
    assert gadget("predict", out, "breast-cancer", "--node", "1").output.endswith("by node 1\n")
