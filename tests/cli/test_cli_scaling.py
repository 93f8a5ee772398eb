"""`gadget train --scale`: what is saved predicts unscaled rows as the scaled training did."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from gadget_svm import GadgetSVC, load_model
from support.cli_kit import SRC, gadget


def unequal(path, rows=160, seed=0, sparse=False):
    """Features whose sizes differ by 10,000, one of them far from zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 5)) * [1, 100, 0.01, 10, 1] + [0, 0, 0, 0 if sparse else 500, 0]
    y = np.where(X[:, 0] + X[:, 1] / 100 - 0.3 * (X[:, 3] - 500 * (not sparse)) / 10 > 0.4, "yes", "no")
    if sparse:
        X *= rng.random(X.shape) < 0.4
    np.savetxt(
        path,
        np.column_stack([X.round(5).astype(str), y]),
        fmt="%s",
        delimiter=",",
        header="a,b,c,d,e,label",
        comments="",
    )
    return path


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["deviation", "max-abs"])
@pytest.mark.parametrize("more", [["--no-intercept"], []])
def test_saved_model_is_unscaled(tmp_path, kind, more):
    from gadget_svm.data import read_table
    from gadget_svm.peers.training.scale import common_scale, statistics

    train, test = unequal(tmp_path / "train.csv"), unequal(tmp_path / "test.csv", rows=70, seed=1)
    typed = ["train", train, "--test", test, "--scale", kind, "--nodes", 3, "--max-iter", 40, *more]
    result = gadget(*typed, "--json", "--out", tmp_path / "m")
    assert result.exit_code == 0, result.stderr
    run, model = json.loads(result.stdout), load_model(tmp_path / "m" / "model.safetensors")
    assert run["parameters"]["scale"] == kind
    (X, y), (X_test, y_test) = read_table(train), read_table(test)
    scale = common_scale(kind, [statistics(kind, "all", X)], shifts=not more)
    by_hand = GadgetSVC(n_nodes=3, max_iter=40, random_state=0, fit_intercept=not more).fit(scale.apply(X), y)
    np.testing.assert_allclose(model.decision_function(X_test), by_hand.decision_function(scale.apply(X_test)))
    for node in range(3):
        one, other = model.node(node).predict(X_test), by_hand.node(node).predict(scale.apply(X_test))
        np.testing.assert_array_equal(one, other)
    assert run["average"]["test_accuracy"] == pytest.approx(model.score(X_test, y_test), abs=1e-12)
    predicted = gadget("predict", tmp_path / "m", test, "--json")
    assert json.loads(predicted.stdout)["accuracy"] == pytest.approx(run["average"]["test_accuracy"], abs=1e-12)


def test_scaled_rows_stay_sparse(tmp_path):
    from gadget_svm.cli.train import TrainRequest
    from gadget_svm.cli.train_data import TrainingRows
    from gadget_svm.data import load_dataset

    data = load_dataset(unequal(tmp_path / "sparse.csv", sparse=True))
    for kind in ("deviation", "max-abs"):
        assert TrainingRows(TrainRequest(["x"], scale=kind)).with_rows(data, None).data.X.nnz == data.X.nnz


def test_scale_is_suggested(tmp_path):
    path = unequal(tmp_path / "train.csv")
    assert "--scale deviation" in gadget("train", path, "--nodes", 3, "--max-iter", 5).stdout
    assert "--scale" not in gadget("train", path, "--nodes", 3, "--max-iter", 5, "--scale", "deviation").stdout


def test_scale_classes_and_shards(tmp_path):
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    for part in range(3):
        np.savetxt(tmp_path / f"{part}.csv", np.column_stack([100 * X, y])[part::3], delimiter=",", fmt="%g")
    shards = [tmp_path / f"{part}.csv" for part in range(3)]
    result = gadget("train", *shards, "--scale", "deviation", "--json", "--out", tmp_path / "m", "--max-iter", 100)
    assert result.exit_code == 0, result.stderr
    model = load_model(tmp_path / "m" / "model.safetensors")
    assert json.loads(result.stdout)["average"]["train_accuracy"] == pytest.approx(model.score(100 * X, y), abs=1e-12)


def test_scale_refused(tmp_path):
    shards = [unequal(tmp_path / name) for name in ("a.csv", "b.csv")]
    remote = gadget("train", *shards, "--scale", "deviation", "--engine", "ray")
    assert remote.exit_code == 2
    assert "--scale deviation: the actors read the shards" in remote.stderr
    wrong = gadget("train", shards[0], "--scale", "deviatoin")
    assert wrong.exit_code == 2
    assert re.search("--scale deviatoin: .*deviation", wrong.stderr)


def test_train_needs_no_package_of_the_peers():
    code = (
        "import sys\n"
        "for name in ('grpc', 'google.protobuf', 'cryptography', 'prometheus_client'):\n"
        "    sys.modules[name] = None\n"
        "import gadget_svm.cli.app, gadget_svm.cli.train_data, gadget_svm.cli.summary\n"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
