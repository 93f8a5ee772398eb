"""`gadget peer demo`: real processes learn until certified; one is killed and restarted; all write one model."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
pytest.importorskip("aiohttp")

from gadget_svm import load_dataset, load_model
from gadget_svm.cli import peer_demo
from gadget_svm.cli.app import app
from gadget_svm.cli.peer import PeerDemoRequest
from gadget_svm.cli.peer_demo import PeerProcess, closing, free_ports, set_up
from gadget_svm.peers.process.config import load
from gadget_svm.study.study_file import load_study


def demo(*options):
    return CliRunner().invoke(app, ["peer", "demo", *map(str, options)], prog_name="gadget")


def test_three_peers_one_killed_write_the_same_certified_model(tmp_path):
    out = tmp_path / "three"
    found = demo("--peers", 3, "--chaos", "--gap", 0.05, "--json", "--out", out)
    assert found.exit_code == 0, found.output
    summary = json.loads(found.stdout)
    assert summary == json.loads((out / "summary.json").read_text())
    assert summary["lam"] == load_study(out / "study.toml").lam
    assert "was killed" in found.stderr
    files = [(out / f"peer-{i}" / "model.safetensors").read_bytes() for i in (1, 2, 3)]
    assert files[0] == files[1] == files[2]
    model = load_model(out / "peer-1" / "model.safetensors")
    assert model.study_["kind"] == "certified"
    assert 0 < model.gap_bound_ <= 0.05
    assert sorted(model.sites_) == ["peer-1", "peer-2", "peer-3"]
    assert [event["event"] for event in summary["events"]][:2] == ["was killed", "was started again"]
    assert all(each["exit_code"] == 0 and each["accuracy"] > 0.9 for each in summary["peers"])
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(out) not in running


def test_the_files_of_a_demo(tmp_path):
    data = load_dataset("digits")
    request = PeerDemoRequest(peers=3, out=tmp_path)
    folders = set_up(request, data, 0.01)
    configs = [load(folder / "peer.toml") for folder in folders]
    assert all(config.missing() == [] for config in configs)
    study = load_study(configs[0].peer.study)
    assert (study.sites, study.lam, study.gap) == (("peer-1", "peer-2", "peer-3"), 0.01, 0.01)
    parts = [np.load(config.data.train) for config in configs]
    assert sorted(np.concatenate([part["data"] for part in parts])) == sorted(data.X.data)
    assert {int(part["shape"][1]) for part in parts} == {data.X.shape[1]}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--data", "digitz"], "Did you mean 'digits'?"),
        (["--data", "nowhere.svm"], "nowhere.svm"),
        (["--peers", "1"], "--peers"),
        (["--peers", "64", "--data", "breast-cancer"], "a peer learns from at least 20 rows"),
        (["--lam", "-1"], "--lam -1: "),
        (["--seed", "-1"], "--seed -1: "),
    ],
)
def test_bad_input(tmp_path, options, sentence):
    found = demo("--out", tmp_path / "out", *options)
    assert found.exit_code == 2
    assert sentence in found.output
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("all my work")
    found = demo("--out", tmp_path)
    assert found.exit_code == 2
    assert "holds something else than an earlier demo" in found.output
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "file").write_text("")
    found = demo("--out", tmp_path / "file" / "out")
    assert found.exit_code == 2
    assert "is a file, not a folder" in found.output


def test_a_demo_that_runs_is_not_replaced(tmp_path):
    from gadget_svm.core.file_lock import lock_file

    (tmp_path / peer_demo.MARK).write_text("{}")
    (tmp_path / "peer-1").mkdir()
    lock = lock_file(tmp_path / peer_demo.LOCK)
    try:
        assert demo("--out", tmp_path).exit_code == 1
    finally:
        lock.release()
    assert (tmp_path / "peer-1").is_dir()


def test_peers_that_ignore_sigterm_are_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_demo, "STOP_TIMEOUT_S", 0.5)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    peer_demo.stop([PeerProcess(tmp_path, process), PeerProcess(tmp_path)])
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL


def test_the_result_in_words(tmp_path):
    good = {"name": "peer-1", "exit_code": 0, "kind": "certified", "gap_bound": 0.004, "rows": 100.0, "accuracy": 0.95}
    summary = {"clean": True, "peers": [good, good], "seconds": 12.3, "out": str(tmp_path)}
    assert "its gap is at most 0.4 %, it covers 100 rows, and its accuracy is 95.00 %" in closing(summary)
    failed = closing(summary | {"clean": False, "peers": [good | {"exit_code": 2, "kind": None}]})
    assert "peer-1: exit code 2, model None" in failed


def test_free_ports():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(port in peer_demo.PORTS for port in ports)
