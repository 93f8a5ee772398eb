"""Paths and URIs: what is read and written by URI, and what refuses one instead of making a local folder."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from typer.testing import CliRunner

from gadget_svm import GadgetSVC, load_dataset, load_model, save_model
from gadget_svm.cli.app import app
from gadget_svm.data import read_table, uris
from gadget_svm.data.formats import read_files
from support.web_server import Web

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'gadget-svm[remote]'")
QUICK = ["--nodes", "3", "--max-iter", "20", "--lam", "0.05"]
SETTINGS = {"lam": 0.05, "random_state": 1, "stopping": None, "max_iter": 10}


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """fsspec's file system in memory, and an empty working directory in which nothing may appear."""
    monkeypatch.chdir(tmp_path)
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()
    assert not [path for path in tmp_path.iterdir() if ":" in path.name]


class Bucket(fsspec.get_filesystem_class("memory")):
    """A stand-in for a store that outlives the process."""

    protocol = "bucket"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("bucket://", "memory://"))


fsspec.register_implementation("bucket", Bucket)


@pytest.fixture
def rows(toy, memory):
    """The toy rows as memory://data/rows.svm."""
    path = Path("rows.svm")
    dump_svmlight_file(toy.X, toy.y, str(path), zero_based=False)
    memory.pipe("/data/rows.svm", path.read_bytes())
    return "memory://data/rows.svm"


def gadget(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="gadget")


def test_training_by_uris(rows, memory):
    """Data, test rows, model, report and predictions; the local engine."""
    out = "bucket://runs/one"
    result = gadget("train", rows, "--test", rows, *QUICK, "--out", out, "--report", "bucket://runs/report.html")
    assert result.exit_code == 0, result.stderr
    assert f"The model is in {out}/model.safetensors" in " ".join(result.stderr.split())
    assert sorted(memory.store) == [
        "/data/rows.svm", "/runs/one/history.jsonl", "/runs/one/model.safetensors", "/runs/one/summary.json",
        "/runs/report.html",
    ]  # fmt: skip
    assert len(load_model(f"{out}/model.safetensors").node_coef_) == 3
    for model in (out, f"{out}/model.safetensors"):
        result = gadget("predict", model, rows, "--out", "bucket://answers/a.txt")
        assert result.exit_code == 0, result.stderr
    assert len(memory.cat("/answers/a.txt").splitlines()) == 60


def test_model_by_uri(toy, memory):
    model = GadgetSVC(3, **SETTINGS).fit(toy.X, toy.y)
    assert save_model(model, "memory://models/m.safetensors") == "memory://models/m.safetensors"
    np.testing.assert_array_equal(load_model("memory://models/m.safetensors").node_coef_, model.node_coef_)
    memory.pipe("/models/bad.safetensors", b"nonsense")
    with pytest.raises(ValueError, match=r"^memory://models/bad\.safetensors is truncated"):
        load_model("memory://models/bad.safetensors")
    with pytest.raises(FileNotFoundError, match=r"no file memory://models/absent\.safetensors"):
        load_model("memory://models/absent.safetensors")


def test_tables_and_shards_by_uri(toy, rows):
    np.testing.assert_array_equal(read_table(rows)[1], toy.y)
    assert load_dataset(rows).name == "rows.svm"
    by_path = GadgetSVC(**SETTINGS).fit_shards(["rows.svm", "rows.svm"])
    np.testing.assert_array_equal(GadgetSVC(**SETTINGS).fit_shards([rows, rows]).node_coef_, by_path.node_coef_)


def test_messages_name_the_uri(memory):
    memory.pipe("/data/narrow.csv", b"a,label\n1,0\n2,1\n")
    memory.pipe("/data/wide.csv", b"a,b,label\n1,2,0\n2,3,1\n")
    with pytest.raises(
        ValueError, match=r"^memory://data/wide\.csv has 2 features and memory://data/narrow\.csv has 1"
    ):
        read_files(["memory://data/narrow.csv", "memory://data/wide.csv"])


def test_one_uri_is_no_shard(rows):
    result = gadget("train", rows, *QUICK, "--json")
    assert result.exit_code == 0, result.stderr
    assert '"shards"' not in result.stdout


def test_web_is_read_only(toy, tmp_path, memory):  # noqa: ARG001
    dump_svmlight_file(toy.X, toy.y, str(tmp_path / "rows.svm"), zero_based=False)
    with Web(tmp_path) as web:
        assert gadget("train", web.url("rows.svm"), *QUICK).exit_code == 0
        result = gadget("train", "rows.svm", *QUICK, "--out", web.url("out?key=hush"))
    assert result.exit_code == 2
    assert "can be read but not written" in result.stderr
    assert "hush" not in result.stderr


def test_target_checked_before_training(rows, monkeypatch):
    def full(*_):
        raise OSError("access denied")

    monkeypatch.setattr(uris, "_file_system", full)
    result = gadget("train", "rows.svm", *QUICK, "--out", "bucket://runs")
    assert (result.exit_code, "iteration" in result.stderr) == (1, False)
    assert "cannot be written: access denied" in result.stderr
    assert rows


def test_unknown_scheme(memory):  # noqa: ARG001
    result = gadget("train", "digits", *QUICK, "--out", "nosuch://bucket/m")
    assert result.exit_code == 2
    assert "nosuch" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["train", "digits", "--data-dir", "s3://bucket/data"],
        ["demo", "--out", "s3://bucket/demo"],
        ["reproduce", "table1", "--out", "s3://bucket/results"],
        ["certs", "init", "s3://bucket/ca"],
        ["peer", "new", "x", "--out", "s3://bucket/peer.toml"],
        ["train", "digits", "--engine", "ray", "--engine-option", "checkpoint_dir=s3://bucket/c"],
        ["train", "digits", "--engine", "ray", "--engine-option", "temp_dir=s3://bucket/c"],
    ],
    ids=lambda command: " ".join(command[:2]) + command[-1][:10],
)
def test_local_paths_only(command, memory):  # noqa: ARG001
    result = gadget(*command)
    assert result.exit_code == 2, result.output
    assert " is a URI, and " in " ".join(result.stderr.split())


def test_uri_made_a_path(toy, memory):  # noqa: ARG001
    model = GadgetSVC(3, **SETTINGS).fit(toy.X, toy.y)
    with pytest.raises(ValueError, match="lost a '/'"):
        save_model(model, Path("s3://bucket/m"))


def test_join_keeps_the_query():
    assert uris.join("s3://k:s@b/m/?endpoint_override=h:1", "x") == "s3://k:s@b/m/x?endpoint_override=h:1"
    assert uris.join(Path("a"), "x") == Path("a/x")
    assert uris.parse_location("file:///a%20b") == Path("/a b")
