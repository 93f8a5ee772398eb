"""`gadget peer demo`: real processes learn, one is killed and returns, all leave, and what they left is measured."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("google.protobuf")
pytest.importorskip("grpc")
pytest.importorskip("prometheus_client")
pytest.importorskip("pydantic")
from rich.console import Console
from typer.testing import CliRunner

from gadget_svm import load_dataset
from gadget_svm.cli import peer_demo, peer_folders, peer_processes
from gadget_svm.cli.app import app
from gadget_svm.cli.evaluation import Evaluation
from gadget_svm.cli.peer_demo import DemoRun, PeerDemoRequest, with_number_labels
from gadget_svm.cli.peer_results import closing, pooled_optimum
from gadget_svm.estimator import load_model


def demo(*options: object):
    return CliRunner().invoke(app, ["peer", "demo", *map(str, options)], prog_name="gadget")


def still_running(folder: Path) -> list[str]:
    """Processes that were given a file of this folder."""
    lines = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if str(folder) in line and "peer run" in line]


def test_demo(tmp_path):
    """One run for all that is to be seen of it, since it takes its time."""
    out = tmp_path / "three"
    found = demo("--peers", 3, "--data", "digits", "--seconds", 10, "--lam", 0.01, "--chaos", "--out", out)
    assert found.exit_code == 0, found.output
    assert still_running(out) == []
    assert "is killed" in found.output
    assert "is started again" in found.output
    assert "The worst of 3 models" in found.output
    summary = json.loads((out / "summary.json").read_text())
    check_summary(out, summary)
    check_restart(out, summary["events"])
    check_rows_are_divided(out)


def check_summary(out, summary):
    data = load_dataset("digits")
    evaluation = Evaluation.of(data, 0.01, intercept=False)
    bound = summary["pooled"]["bound"]
    assert 0 <= summary["pooled"]["certified_gap"] <= 1e-5
    assert [one["name"] for one in summary["peers"]] == ["peer-1", "peer-2", "peer-3"]
    assert sum(one["rows"] for one in summary["peers"]) == len(data.y)
    for one in summary["peers"]:
        model = load_model(out / one["name"] / "model.safetensors")
        scores = evaluation.model(model.coef_, model.intercept_, intercept=False)
        assert one["train_objective"] == pytest.approx(scores["train_objective"])
        assert one["test_accuracy"] == np.mean(model.predict(data.X_test) == data.y_test)
        assert one["gap"] == pytest.approx(scores["train_objective"] / bound - 1)
        assert one["gap"] >= 0
        assert one["bytes"] >= one["messages"]
        assert one["ticks"] > 0
    assert summary["worst_gap"] == max(one["gap"] for one in summary["peers"])
    assert summary["clean"]


def check_restart(out, events):
    assert [event["event"] for event in events] == ["killed", "started", "answers"]
    assert 0 < events[0]["ticks"] == events[1]["ticks"] <= events[2]["ticks"]
    victim = events[0]["peer"]
    log = [json.loads(line) for line in (out / victim / "log.jsonl").read_text().splitlines()]
    ups = [line["fields"]["incarnation"] for line in log if line["event"] == "up"]
    assert len(ups) == 2
    assert ups[1] > ups[0]
    (again,) = [line["fields"]["ticks"] for line in log if line["event"] == "going on from a checkpoint"]
    assert again == events[0]["ticks"]


def check_rows_are_divided(out):
    data = load_dataset("digits")
    parts = [np.load(out / f"peer-{i}" / "train.npz") for i in (1, 2, 3)]
    assert sorted(np.concatenate([part["data"] for part in parts])) == sorted(data.X.data)
    assert [int(part["shape"][1]) for part in parts] == [data.X.shape[1]] * 3


def test_saved_ticks(tmp_path):
    from gadget_svm.peers import checkpoint

    data = load_dataset("digits")
    folders = peer_folders.set_up(tmp_path, data, 2, algorithm="pdmm", lam=0.01, seed=0, seconds=5.0)
    peer = peer_processes.PeerProcess(folders[0])
    assert peer.saved_ticks() == 0
    for learner, ticks in ((None, 0), ({"t": 41}, 41)):
        checkpoint.save(peer.config.peer.state, {}, {"learner": learner})
        assert peer.saved_ticks() == ticks


class FakePeer:
    """A peer that starts and answers as told."""

    expected, ticks, hears = True, 9, True

    def __init__(self, name, **fields):
        self.name, self.process, self.status, self.exit_code = name, None, None, None
        self.__dict__ |= fields

    def start(self):
        self.process = "started"

    async def ask(self):
        pass


class FakeFleet:
    """Peers that are asked to stop, and how they ended."""

    def __init__(self, peers, lost=()):
        self.peers, self.lost, self.started = peers, list(lost), []

    async def ask_all(self):
        self.stop_request.requested = True  # Ctrl-C, as soon as they learn

    async def stop(self):
        return {peer.name: "left" for peer in self.peers}

    async def close(self):
        self.closed = True


def a_run(fleet):
    request = PeerDemoRequest(peers=len(fleet.peers), seconds=600.0)
    fleet.stop_request = SimpleNamespace(requested=False)
    return DemoRun(request, fleet, fleet.stop_request, Console(stderr=True))


def test_ctrl_c_ends_early_and_lets_all_leave(capsys):
    fleet = FakeFleet([FakePeer(f"peer-{i}") for i in range(3)])
    run = a_run(fleet)
    asyncio.run(run.run())
    assert [peer.process for peer in fleet.peers] == ["started"] * 3
    assert 0 < run.seconds < 60
    assert run.ends == {peer.name: "left" for peer in fleet.peers}
    assert fleet.closed
    assert "Interrupted: all peers are asked to leave." in capsys.readouterr().err


def test_a_peer_without_messages_is_named(capsys, monkeypatch):
    monkeypatch.setattr(peer_demo, "FIRST_MESSAGE_S", 0.0)
    asyncio.run(a_run(FakeFleet([FakePeer("peer-1"), FakePeer("peer-2", hears=False)])).run())
    assert "No message reached peer-2 in 0 s; the demo continues." in capsys.readouterr().err


def test_a_peer_that_cannot_start_is_named():
    broken = FakePeer("peer-2", exit_code=2, ticks=0)
    with pytest.raises(peer_processes.PeersError, match=r"peer-2 \(exit code 2\) ended before all had started"):
        asyncio.run(a_run(FakeFleet([FakePeer("peer-1"), broken], lost=[broken])).run())


def test_the_end_of_a_log_names_errors(tmp_path):
    data = load_dataset("digits")
    folders = peer_folders.set_up(tmp_path, data, 2, algorithm="pdmm", lam=0.01, seed=0, seconds=5.0)
    peer = peer_processes.PeerProcess(folders[0])
    up = {"level": "info", "event": "up", "fields": {"port": 1}}
    peer.log.write_text(json.dumps(up) + "\n")
    assert peer.log_end() == ["info: up, port 1"]
    peer.log.write_text(json.dumps(up) + "\nerror: train.npz is truncated or damaged\n")
    assert peer.log_end() == ["error: train.npz is truncated or damaged"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--data", "digitz"], "Did you mean 'digits'?"),
        (["--data", "nowhere.svm"], "nowhere.svm"),
        (["--peers", "1"], "--peers"),
        (["--peers", "64", "--data", "breast-cancer"], "a peer learns from at least 20 rows"),
        (["--algorithm", "pdmn"], "Did you mean 'pdmm'?"),
        (["--lam", "-1"], "--lam must be a positive number, got -1"),
        (["--seed", "-1"], "--seed must be a whole number of at least 0, got -1"),
    ],
)
def test_bad_input(tmp_path, options, sentence):
    found = demo("--out", tmp_path / "out", *options)
    assert found.exit_code == 2
    assert sentence in found.output
    assert not (tmp_path / "out").exists()


def test_foreign_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("all my work")
    found = demo("--out", tmp_path)
    assert found.exit_code == 2
    assert "holds something else than an earlier demo" in found.output
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_earlier_demo_is_replaced(tmp_path):
    peer_folders.clear(tmp_path)
    (tmp_path / "peer-1").mkdir()
    peer_folders.check_folder(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"also holds notes\.txt"):
        peer_folders.check_folder(tmp_path)
    (tmp_path / "notes.txt").unlink()
    peer_folders.clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [peer_folders.MARK]


def test_running_demo_is_not_replaced(tmp_path):
    from gadget_svm.peers.checkpoint import CheckpointError, Lock

    peer_folders.clear(tmp_path)
    with Lock.acquire(tmp_path / "peer-1" / "state"), pytest.raises(CheckpointError):
        peer_folders.clear(tmp_path)
    assert (tmp_path / "peer-1" / "state").is_dir()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a place where no folder can be made, not even by root")
def test_impossible_folder():
    found = demo("--out", "/proc/nowhere", "--seconds", 5)
    assert found.exit_code in (1, 2)
    assert isinstance(found.exception, SystemExit)
    assert "error: --out" in found.output
    assert "/proc/nowhere" in found.output


@pytest.mark.parametrize("step", ["clear", "set_up"])
def test_full_disk(tmp_path, monkeypatch, step):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")  # as a write says it: without a file's name

    monkeypatch.setattr(peer_folders, step, full)
    found = demo("--out", tmp_path / "out", "--seconds", 5)
    assert found.exit_code == 1  # worth a retry, once there is space
    assert f"cannot write to --out {tmp_path / 'out'}: No space left" in " ".join(found.output.split())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder(tmp_path):
    tmp_path.chmod(0o500)
    found = demo("--out", tmp_path / "out")
    assert found.exit_code == 2
    assert "may not be written to" in found.output


def test_file_in_place_of_folder(tmp_path):
    (tmp_path / "file").write_text("")
    found = demo("--out", tmp_path / "file" / "out")
    assert found.exit_code == 2
    assert "is a file, not a folder" in found.output


def test_fleet_kills_after_sigterm(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_processes, "TERMINATE_TIMEOUT_S", 0.5)
    data = load_dataset("digits")
    folders = peer_folders.set_up(tmp_path, data, 2, algorithm="pdmm", lam=0.01, seed=0, seconds=5.0)
    peer = peer_processes.PeerProcess(folders[0])
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    with peer_processes.Fleet([peer]):
        peer.process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, start_new_session=True)
        assert peer.process.stdout is not None
        assert peer.process.stdout.readline()
    peer.process.stdout.close()
    assert peer.exit_code == -signal.SIGKILL


def test_pooled_optimum_of_several_classes(toy):
    from scipy.sparse import csr_matrix

    from gadget_svm.data import Dataset
    from gadget_svm.reproduction.baselines.optimum import certified_optimum

    X = csr_matrix(toy.X)
    data = Dataset("toy", X, toy.three, None, None, None, "")
    pooled = pooled_optimum(data, Evaluation.of(data, 0.1, intercept=False))
    each = [certified_optimum(X, np.where(toy.three == k, 1, -1), 0.1, 1e-6).objective for k in range(3)]
    assert pooled["objective"] == pytest.approx(sum(each), rel=1e-5)
    assert pooled["bound"] <= pooled["objective"] <= pooled["bound"] * (1 + 1e-5)


def test_number_labels(toy):
    from gadget_svm.data import Dataset

    data = Dataset("toy", toy.X, np.where(toy.y, "10", "9"), None, None, None, "")
    assert with_number_labels(data).y.tolist() == np.where(toy.y, 10.0, 9.0).tolist()
    words = Dataset("toy", toy.X, np.where(toy.y, "yes", "9"), None, None, None, "")
    assert with_number_labels(words) is words


def test_closing_names_failed_peers():
    peers = [
        {"name": "peer-1", "gap": 0.00123, "clean": True, "end": "left", "exit_code": 0, "error": None},
        {"name": "peer-2", "gap": None, "clean": False, "end": "killed", "exit_code": -9, "error": "no file"},
    ]
    said = closing({"peers": peers, "interrupted": False, "dataset": {"rows": 1000}})
    assert "Not ended cleanly: peer-2 (killed, exit code -9, no model)." in said
    assert "peer-1, is at most 0.13 % above" in said


def test_free_ports():
    ports = peer_folders.free_ports(20)
    assert len(set(ports)) == 20
    assert all(port in peer_folders.PORTS for port in ports)
