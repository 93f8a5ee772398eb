"""`gadget peer run`, `status`, `stop`, `export`: one clear sentence for what is wrong, and what a status shows."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from io import StringIO

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
pytest.importorskip("aiohttp")
from rich.console import Console

from gadget_svm import load_model
from gadget_svm.cli import peer_client
from gadget_svm.cli.app import app
from gadget_svm.cli.peer_client import peer_table
from gadget_svm.cli.peer_demo import free_ports
from gadget_svm.core.file_lock import lock_file
from gadget_svm.peers.process.config import load
from gadget_svm.peers.process.model_export import write_model
from gadget_svm.peers.storage.snapshot import ModelDocument
from gadget_svm.study.study import Study

STARTUP_S = 120


def gadget(*words):
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="gadget")


def made(*words):
    found = gadget(*words)
    assert found.exit_code == 0, found.output


def site(folder, rows=60, **study):
    """A folder with everything that the peer "north" needs."""
    folder.mkdir()
    lines = [f"{i % 13},{(7 * i) % 11},{i % 2}" for i in range(rows)]
    (folder / "rows.csv").write_text("\n".join(["age,size,label", *lines]) + "\n")
    made("certs", "init", folder / "ca")
    made("certs", "issue", "north", "--host", "127.0.0.1", "--ca", folder / "ca")
    options = [word for key, value in ({"min-sites": 2} | study).items() for word in (f"--{key}", value)]
    words = ["--lam", 0.1, "--columns-from", folder / "rows.csv", "--label", "label", "--out", folder / "study.toml"]
    made("study", "new", "test", *words, *options)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    made(
        "peer", "new", "north", "--address", address, "--listen", address, "--study", folder / "study.toml",
        "--train", folder / "rows.csv", "--label", "label", "--certs", folder / "ca" / "peers" / "north",
        "--snapshot", 0.5, "--out", folder / "peer.toml",
    )  # fmt: skip
    return folder / "peer.toml"


class Running:
    """A peer in a process of its own."""

    def __init__(self, toml):
        self.toml, self.log = toml, (toml.parent / "log").open("wb")
        command = [sys.executable, "-m", "gadget_svm", "peer", "run", str(toml)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def wait_for(self, reached):
        end = time.monotonic() + STARTUP_S
        while time.monotonic() < end and self.process.poll() is None:
            found = gadget("peer", "status", self.toml, "--json")
            if found.exit_code == 0 and reached(json.loads(found.stdout)):
                return json.loads(found.stdout)
            time.sleep(0.2)
        raise AssertionError((self.toml.parent / "log").read_text())

    def end(self):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()


def test_the_life_of_a_peer(tmp_path, monkeypatch):
    toml = site(tmp_path / "north")
    early = gadget("peer", "export", toml)
    assert early.exit_code == 2
    assert "holds no model: start the peer with 'gadget peer run" in early.output
    peer = Running(toml)
    try:
        found = peer.wait_for(lambda status: status["ticks"] > 5 and (status["snapshot_age"] or 99) < 5)
        assert found["name"] == "north"
        monkeypatch.chdir(toml.parent)
        own = load(toml)
        for words in ([], [toml], ["--config", toml], [own.peer.address, "--config", toml]):
            shown = gadget("peer", "status", *words)
            assert shown.exit_code == 0, shown.output
            assert shown.output.startswith(f"north at {own.peer.address}")
        assert "is written" in gadget("peer", "export", toml).output
        assert load_model(own.peer.model).study_["kind"] == "current"
        second = subprocess.run(
            [sys.executable, "-m", "gadget_svm", "peer", "run", str(toml)], capture_output=True, text=True
        )
        assert second.returncode in (1, 2), "its state and its port are taken"
        assert second.stderr.splitlines()[-1].startswith("error: ")
        stopped = gadget("peer", "stop", toml)
        assert stopped.output.split() == f"north has left; its model is {own.peer.model}.".split()
        assert peer.process.wait(30) == 0
        assert gadget("peer", "stop", toml).exit_code == 1
    finally:
        peer.end()


def test_a_peer_whose_certificate_has_expired_is_stopped_by_a_signal_and_stop_says_which(tmp_path):
    from gadget_svm.authority import certificates

    toml = site(tmp_path / "north")
    peer = Running(toml)
    try:
        peer.wait_for(lambda status: status["uptime"] >= 0)
        then = time.time() - 3 * 86_400
        out = load(toml).tls.cert.parent
        certificates.issue(toml.parent / "ca", "north", ["127.0.0.1"], days=1, overwrite=True, out=out, now=then)
        found = gadget("peer", "stop", toml)
        assert found.exit_code == 2
        assert len(found.output.splitlines()) == 1
        told = re.search(r"It runs as process (\d+): 'kill -TERM \1' makes it leave", found.output)
        assert told is not None, found.output
        os.kill(int(told[1]), signal.SIGTERM)
        assert peer.process.wait(30) == 0
    finally:
        peer.end()


def certified_model(path):
    about = {"gap_bound": 0.00167, "ticks": 9, "study": "test", "sites": [["north", 1, 60.0], ["south", 1, 20.0]]}
    study = Study("test", 0.1, 2, (0.0, 1.0), intercept=False)
    write_model(path, ModelDocument("certified", np.ones((1, 2)), np.ones(2), np.zeros(2), about), study)


@pytest.mark.parametrize("command", ["status", "stop"])
def test_a_peer_that_does_not_run_is_said_not_to(tmp_path, monkeypatch, command):
    toml = site(tmp_path / "north")
    monkeypatch.chdir(tmp_path)
    start = "error: north is not running; start it with 'gadget peer run north/peer.toml'"
    found = gadget("peer", command, "north/peer.toml")
    assert (found.exit_code, found.output) == (1, f"{start}\n")
    own = load(toml).peer
    assert not own.state.exists(), "looking leaves no trace"
    certified_model(own.model)
    found = gadget("peer", command, "north/peer.toml")
    assert (found.exit_code, found.output) == (
        1, f"{start}; its certified model is in {own.model} (gap at most 0.167 %)\n"
    )  # fmt: skip
    own.state.mkdir()
    lock = lock_file(own.state / "lock")
    try:
        assert "is not running" not in gadget("peer", command, "north/peer.toml").output
    finally:
        lock.release()
    assert "north is not running" in gadget("peer", command, "north/peer.toml").output


def test_the_status_of_a_file_expects_its_name_and_that_of_an_address_any_peer(tmp_path, monkeypatch):
    """With a name, TLS does not compare the certificate with the address."""
    toml, asked = site(tmp_path / "north"), []
    monkeypatch.setattr(peer_client, "fetch_status", lambda _, *words: asked.append(words) or STATUS)
    assert gadget("peer", "status", toml, "--json").exit_code == 0
    assert gadget("peer", "status", "10.0.0.9:7400", "--config", toml, "--json").exit_code == 0
    assert [name for _, name in asked] == ["north", None]


@pytest.mark.parametrize("options", [["--json"], []])
def test_watch_ends_with_ctrl_c_and_exit_code_0(tmp_path, monkeypatch, options):
    toml = site(tmp_path / "north")
    answers = iter([STATUS, STATUS])

    def answer(*_):
        if (found := next(answers, None)) is None:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(peer_client, "fetch_status", answer)
    monkeypatch.setattr(peer_client, "STATUS_INTERVAL_S", 0.0)
    found = gadget("peer", "status", toml, "--watch", *options)
    assert (found.exit_code, found.stderr) == (0, "\n")
    if options:
        assert [json.loads(line) for line in found.stdout.splitlines()] == [STATUS, STATUS]


def test_gadget_cannot_be_run_until_certified(tmp_path):
    found = gadget("peer", "run", site(tmp_path / "north", algorithm="gadget"), "--until", "certified")
    assert found.exit_code == 2
    assert "--until certified needs the algorithm pdmm" in found.output


def run_to_its_end(toml):
    """Return the exit code of `gadget peer run` and the sentence that it ends with, beside the log."""
    done = subprocess.run(
        [sys.executable, "-m", "gadget_svm", "peer", "run", str(toml)], capture_output=True, text=True
    )
    (said,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    return done.returncode, said


def another_label(toml):
    toml.write_text(toml.read_text().replace('label = "label"', 'label = "lable"'))
    return "has no label column 'lable'"


def too_few_rows(toml):
    path = toml.parent / "rows.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:6]) + "\n")
    return "has 5 rows"


def other_columns(toml):
    path = toml.parent / "rows.csv"
    path.write_text(path.read_text().replace("size", "weight"))
    return "has a column 'weight', the study does not"


def no_study(toml):
    load(toml).peer.study.unlink()
    return "peer.study: there is no file"


def old_format(toml):
    toml.write_text(toml.read_text() + "[learn]\nlam = 0.1\n")
    return "older format"


@pytest.mark.parametrize("wrong", [another_label, too_few_rows, other_columns, no_study, old_format])
def test_what_no_restart_mends_has_the_code_for_wrong_use(tmp_path, wrong):
    toml = site(tmp_path / "north")
    sentence = wrong(toml)
    code, said = run_to_its_end(toml)
    assert code == 2
    assert sentence in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.toml"], "error: nowhere.toml does not exist: name a peer.toml, as 'gadget peer new' writes it\n"),
        (
            ["north"],
            "error: 'north' is not host:port, such as site-a.example.org:7400, 10.0.0.7:7400 or [::1]:7400; nor is "
            "there such a file\n",
        ),
        (
            ["10.0.0.7:7400"],
            "error: peer.toml does not exist: name a peer's file with --config, whose certificate 10.0.0.7:7400 "
            "trusts\n",
        ),
        ([], "error: peer.toml does not exist: name a peer.toml, as 'gadget peer new' writes it\n"),
    ],
)
def test_status_says_what_it_did_not_find(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    found = gadget("peer", "status", *words)
    assert found.exit_code == 2
    assert found.output == said


STATUS = {
    "name": "north", "address": "a:7400", "state": "degraded", "why": ["cannot save: the disk is full"], "ticks": 1234,
    "rows": 60, "network_rows": 180.0, "objective": 0.031, "gap_estimate": 0.004, "disagreement": None,
    "test_accuracy": 0.95, "messages_sent": {"push": 8, "heartbeat": 2}, "bytes_sent": 1000,
    "messages_received": 9, "bytes_received": 900,
    "refused": {"rate": 2}, "last_refusals": ["study: west has [learn] lam = 0.1"],
    "members": {"alive": 3, "dead": 1}, "dead": ["east"], "certificate_days_left": 12.3,
    "issues": {"snapshot": "cannot save: the disk is full", "join": "cannot reach b:1"},
    "neighbours": [
        {"name": "south", "edge": "up", "opened_by": "them", "last_heard": 0.5, "objective": 0.03,
         "pushes_sent": 5, "pushes_received": 6},
        {"name": "west", "edge": "down", "opened_by": None, "last_heard": None, "objective": None,
         "pushes_sent": 0, "pushes_received": 0},
    ],
    "certified": {"id": "7-north", "bound": 0.006, "time": 1.5e9, "sites": ["north", "south"], "rows": 120.0,
                  "confirmed": ["south"], "saved": True, "file": "/data/model.safetensors"},
    "partition": None, "untrusted": {"west": "revoked"},
}  # fmt: skip


def shown(**changes):
    text = StringIO()
    Console(file=text, width=250).print(peer_table(STATUS | changes))
    return text.getvalue()


def test_a_status_names_what_an_operator_needs():
    found = shown()
    for part in (
        "north at a:7400", "degraded, tick 1,234, 60 rows of 180; 3 alive, 1 dead; dead: east",
        "estimated gap 0.4 %", "10 messages sent (1,000 bytes), 9 received",
        "disagreement -", "test accuracy 95 %", "refused: 2 rate",
        "refused: study: west has [learn] lam = 0.1", "certificate valid for 12 days", "join: cannot reach b:1",
        "certified model 7-north of 2017-07-14 02:40:00 UTC: gap at most 0.6 %, 120 rows of north, south; on disk at",
        "  in /data/model.safetensors", "no link to west: its certificate is revoked",
    ):  # fmt: skip
        assert part in found, part
    assert found.count("the disk is full") == 1
    assert re.search(r"south .* up .* south ", found), "who opened the link"


def test_a_status_without_a_certified_model_or_an_address():
    found = shown(certified=None, address="", neighbours=[], test_accuracy=None)
    assert "no certified model yet" in found
    assert "accuracy" not in found
    assert "it only dials out" in found


def test_a_model_of_a_part_of_the_sites_is_shown_with_its_file():
    file = "/data/model.partition.safetensors"
    partition = {"id": "9-north", "bound": 0.004, "time": 1.6e9, "sites": ["north"], "rows": 60.0, "file": file}
    found = shown(certified=STATUS["certified"] | {"saved": False}, partition=partition)
    assert (
        "model of a part of the sites 9-north of 2020-09-13 12:26:40 UTC: gap at most 0.4 %, 60 rows of north" in found
    )
    assert f"  in {file}" in found
    assert "/data/model.safetensors" not in found, "it is not written yet"
