"""The commands beside train and predict, and the program as a whole."""

import json
import os
import subprocess
import sys

import pytest

from support.cli_kit import SRC, gadget, write_rows


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from gadget_svm.cli import main\n"
        "sys.argv = ['gadget', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'numba', 'sklearn', 'networkx', 'plotly', 'pandas', 'safetensors'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    assert result.returncode == 0, f"imported: {result.stderr}"
    assert all(command in result.stdout for command in ("demo", "train", "predict", "topology", "data"))


@pytest.mark.parametrize("command", [[], ["train"], ["predict"], ["data", "list"], ["peer", "status"], ["certs"]])
def test_h_is_help(command):
    result = gadget(*command, "-h")
    assert result.exit_code == 0, result.output
    assert "Usage" in result.stdout


def test_data_list_json(tmp_path):
    listed = json.loads(gadget("data", "list", "--json", "--data-dir", tmp_path).stdout)
    assert {"digits", "adult"} <= {entry["name"] for entry in listed}


def test_completion_is_offered():
    assert "--show-completion" in gadget("--help").stdout


def test_topology_as_table_and_json():
    facts = json.loads(gadget("topology", "ring", "--nodes", 12, "--json").stdout)
    assert (facts["nodes"], facts["edges"], facts["diameter"], facts["degree_max"]) == (12, 12, 6, 2)
    table = gadget("topology", "ring", "--nodes", 12).stdout
    assert "diameter" in table
    assert f"{facts['tau_mix']:.5g}" in table


def test_data_list_and_version(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / ("long-name-" * 10) / "adult"
    folder.mkdir(parents=True)
    for name in ("a9a", "a9a.t"):
        write_rows(folder / name)
    listed = gadget("data", "list", "--data-dir", folder.parent).stdout
    assert all(name in listed for name in ("digits", "adult", "ccat", "gisette", "3.07e-05"))
    assert f"adult: found in {folder}\n" in listed, "a path stays in one line"
    assert gadget("--version").stdout.startswith("gadget-svm 0.")


def test_data_path_finds_a_given_folder(tmp_path):
    (tmp_path / "adult").mkdir()
    for name in ("a9a", "a9a.t"):
        write_rows(tmp_path / "adult" / name)
    assert gadget("data", "path", "adult", "--data-dir", tmp_path).stdout.strip() == str(tmp_path / "adult")


def test_demo(tmp_path):
    result = gadget("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.stderr
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert len(summary["nodes"]) == 10
    assert min(node["test_accuracy"] for node in summary["nodes"]) >= 0.97
    assert summary["reference"]["train_objective"] <= summary["average"]["train_objective"] * 1.001
    assert "one machine" in result.stdout
    assert str(tmp_path / "demo" / "report.html") in result.stderr
    assert (tmp_path / "demo" / "report.html").stat().st_size > 1_000_000, "plotly is inside"


def test_demo_without_plotly(tmp_path, monkeypatch):
    for name in ("plotly", "plotly.graph_objects"):
        monkeypatch.setitem(sys.modules, name, None)
    result = gadget("demo", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["nodes"]) == 10
    assert "pip install 'gadget-svm[report]'" in result.stderr
    assert (tmp_path / "model.safetensors").exists()
    assert not (tmp_path / "report.html").exists()
