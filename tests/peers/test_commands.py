"""What a user types about peers and their models, and what is answered: one clear sentence, and nothing beside it."""

import asyncio
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
import warnings
from io import StringIO

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
from rich.console import Console

from gadget_svm.cli.app import app
from gadget_svm.cli.peer_client import peer_table
from gadget_svm.peers import certs, checkpoint
from gadget_svm.peers.calls import PeerError
from gadget_svm.peers.charter import Charter
from gadget_svm.peers.export import export
from gadget_svm.peers.identity import Identity
from gadget_svm.peers.membership import Superseded
from gadget_svm.peers.peer import Peer
from gadget_svm.peers.scale import Scale
from gadget_svm.peers.study import Study
from support.peer_kit import free_port, living, rows, until

DAY = 86_400.0
NAMES = ("age", "size", "dose")


def gadget(*words):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return CliRunner().invoke(app, [str(word) for word in words], prog_name="gadget")


@pytest.fixture
def model(tmp_path):
    """Of a peer called north: the sign of age - size."""
    terms = Charter("test", "pdmm", 0.01, 3, "none", (-1.0, 1.0), False, "none")
    weights = np.array([[1.0, -1.0, 0.0]])
    return export(tmp_path / "m.safetensors", weights, Scale.none(3), terms, name="north", ticks=9, columns=NAMES)


def table(path, columns, *lines):
    path.write_text("\n".join([",".join(columns), *lines]) + "\n")
    return path


def test_a_peers_model_predicts_a_table_without_a_warning_and_in_its_own_name(model, tmp_path):
    """scikit-learn would warn that a matrix has no feature names; the file has, and they were compared."""
    data = table(tmp_path / "t.csv", (*NAMES, "label"), "3,1,5,1", "1,3,5,-1", "1,2,0,1")
    found = gadget("predict", model, data, "--label", "label", "--out", tmp_path / "answers")
    assert found.exit_code == 0, found.output
    assert found.output == "accuracy 66.67 % of 3 rows by the model of north\n"
    assert (tmp_path / "answers").read_text() == "1\n-1\n-1\n"


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
    assert "accuracy 100.00 % of 2 rows by the model of north" in gadget("predict", model, tmp_path / "t.svm").output


def test_the_average_of_several_nodes_is_still_called_so(tmp_path):
    out = tmp_path / "out"
    made = gadget("train", "breast-cancer", "--nodes", "3", "--max-iter", "5", "--out", out, "--quiet")
    assert made.exit_code in (0, 1), made.output
    assert gadget("predict", out, "breast-cancer").output.endswith("by the network average\n")
    assert gadget("predict", out, "breast-cancer", "--node", "1").output.endswith("by node 1\n")


def test_a_port_that_is_taken_is_one_sentence_on_stderr(town):
    """gRPC has lines of its own for that, which nobody asked for."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        config = town.config("a", listen=place, address=f"127.0.0.1:{free_port()}")
        command = [sys.executable, "-m", "gadget_svm", "peer", "run", str(config.peer.state.parent / "peer.toml")]
        found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 1  # it may be free at the next start
    assert found.stdout == ""
    assert found.stderr == (
        f"error: cannot listen on {place} (Address already in use): "
        "set [peer] listen to a free address of this machine, or stop who has it\n"
    )


def run_to_its_end(config):
    """The exit code of `gadget peer run` and the one sentence it ends with, beside the log."""
    found = gadget("peer", "run", config.peer.state.parent / "peer.toml")
    (said,) = [line for line in found.output.splitlines() if not line.startswith("{")]
    return found.exit_code, said


@pytest.mark.parametrize(
    ("error", "code"),
    [(ValueError, 1), (IndexError, 1), (OSError, 1), (RuntimeError, 1), (PeerError, 2), (Superseded, 2)],
)
def test_what_goes_wrong_while_a_peer_runs_may_be_mended_by_a_restart_unless_it_is_its_terms(
    town, monkeypatch, error, code
):
    async def broken(_):
        raise error("of its own accord")

    monkeypatch.setattr(Study, "go_on", broken)
    assert run_to_its_end(town.config("a")) == (code, "error: of its own accord")


def test_a_port_for_metrics_that_is_taken_may_be_free_at_the_next_start(town):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = run_to_its_end(town.config("a", port=taken.getsockname()[1]))
    assert code == 1
    assert "cannot serve metrics" in said


def a_wrong_label(town):
    path = table(town.folder / "a.csv", ("age", "label"), *(f"{i},{i % 2}" for i in range(30)))
    return town.config("a", train=str(path), label="lable", features=1), "has no label column 'lable'"


def too_few_rows(town):
    return town.config("a", rows(n=5)), "a peer learns from at least 20"


def another_run_in_the_state(town):
    former = town.config("a", stop_after_ticks=3)
    assert gadget("peer", "run", former.peer.state.parent / "peer.toml").exit_code == 0
    return town.config("a", lam=0.5), "is of another run"


def an_expired_certificate(town):
    config = town.config("a")
    reissue(town, "a", now=time.time() - 3 * DAY)
    return config, "expired on"


def reissue(town, name, **options):
    certs.issue(town.folder / "ca", name, ["127.0.0.1", "localhost"], days=1, overwrite=True, **options)


@pytest.mark.parametrize("wrong", [a_wrong_label, too_few_rows, another_run_in_the_state, an_expired_certificate])
def test_what_no_restart_mends_has_the_code_for_wrong_use(town, wrong):
    config, sentence = wrong(town)
    code, said = run_to_its_end(config)
    assert code == 2
    assert sentence in said


def test_a_peer_whose_certificate_has_expired_is_stopped_by_a_signal_and_stop_says_which(town):
    config = town.config("a")
    toml = config.peer.state.parent / "peer.toml"
    thread = in_a_thread(Peer(config))
    reissue(town, "a", now=time.time() - 3 * DAY)
    try:
        found = gadget("peer", "stop", toml)
    finally:
        reissue(town, "a")
        assert gadget("peer", "stop", toml).exit_code == 0
        thread.join(60)
    assert found.exit_code == 2
    assert len(found.output.splitlines()) == 1
    assert "a.pem expired on" in found.output
    assert f"It runs as process {os.getpid()}: 'kill -TERM {os.getpid()}' makes it leave" in found.output
    assert "kill" not in gadget("peer", "stop", toml).output  # nobody is there any more


def test_the_status_says_what_is_wrong_with_a_neighbour(town):
    found = json.loads(town.peer("a").status())
    found["neighbours"] = [
        {"name": name, "last_heard": None, "objective": None, "sent": 1, "received": 1, "failures": 1, "rtt": None,
         "trouble": trouble}
        for name, trouble in (("b", "not believed: the certificate of 'b' expired"), ("c", ""))
    ]  # fmt: skip
    said = StringIO()
    Console(file=said, width=200).print(peer_table(found))
    assert "b: not believed: the certificate of 'b' expired" in said.getvalue()
    assert "c: " not in said.getvalue()


def in_a_thread(peer):
    """A peer that lives beside the command that talks to it."""
    up, thread = threading.Event(), threading.Thread(target=lambda: asyncio.run(live()))

    async def live():
        async with living(peer):
            up.set()
            await peer.stopping.wait()

    thread.start()
    assert up.wait(120)
    return thread


@pytest.mark.parametrize("withdraws", [False, True])
def test_stop_says_what_became_of_it_and_status_who_is_kept(town, withdraws):
    config = town.config("a")
    peer = Peer(config)
    thread = in_a_thread(peer)
    toml = config.peer.state.parent / "peer.toml"
    shown = gadget("peer", "status", "--config", toml)
    assert "a at" in shown.output
    assert "keeps" not in shown.output
    found = gadget("peer", "stop", toml, *(["--withdraw"] if withdraws else []))
    thread.join(60)
    assert found.output.split() == f"a has left; its model is {config.peer.model}.".split()
    assert peer._withdraws is withdraws


def test_status_takes_a_peers_file_as_the_other_commands_do(town):
    config, other = town.config("a"), town.config("b")
    toml, theirs = (each.peer.state.parent / "peer.toml" for each in (config, other))
    (named := toml.with_name("south")).write_text(toml.read_text())
    thread = in_a_thread(Peer(config))
    try:
        for words in ([toml], [named], [toml, "--config", theirs], [config.peer.address, "--config", theirs]):
            found = gadget("peer", "status", *words)
            assert found.exit_code == 0, found.output
            assert found.output.startswith(f"a at {config.peer.address}")
    finally:
        gadget("peer", "stop", toml)
        thread.join(60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.toml"], "error: nowhere.toml does not exist: name a peer.toml\n"),
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
        ([], "error: peer.toml does not exist: name a peer.toml\n"),
    ],
)
def test_status_says_what_it_did_not_find(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    found = gadget("peer", "status", *words)
    assert found.exit_code == 2
    assert found.output == said


def test_stop_says_if_the_state_could_not_be_written(town, monkeypatch):
    config = town.config("a", rows(), checkpoint=0.1)
    peer = Peer(config)

    def full(*_):
        raise checkpoint.CheckpointError("cannot save the state: No space left on device; free some space")

    thread = in_a_thread(peer)
    monkeypatch.setattr(checkpoint, "save", full)
    asyncio.run(until(lambda: "checkpoint" in peer.trouble))
    found = gadget("peer", "stop", config.peer.state.parent / "peer.toml")
    thread.join(60)
    assert found.exit_code == 0
    assert "warning: cannot save the state: No space left on device" in " ".join(found.output.split())


def test_the_status_names_those_who_are_kept(town):
    from gadget_svm.peers.legacies import Legacy
    from gadget_svm.peers.messages import Kept

    peer = town.peer("a")
    peer.legacies.kept = {"east": Legacy(1, 5), "west": Legacy(2, 5, (Kept("south", 4),))}
    said = StringIO()
    Console(file=said, width=200).print(peer_table(json.loads(peer.status())))
    assert "keeps the contribution of east, west, who left" in said.getvalue()


def exported(config):
    """What `gadget peer export` says when it fails: one line, and the code for a user's error."""
    found = gadget("peer", "export", config.peer.state.parent / "peer.toml")
    assert found.exit_code == 2, found.output
    assert isinstance(found.exception, SystemExit)
    assert len(found.output.splitlines()) == 1
    return found.output


def test_a_state_of_which_nothing_good_is_left_is_a_sentence_to_who_exports(town):
    config = town.config("a")
    config.peer.state.mkdir()
    for slot in checkpoint.SLOTS:
        (config.peer.state / slot).write_bytes(b"damaged" * 100)
    said = exported(config)
    assert said.startswith(f"error: no good state is left in {config.peer.state}: state.0 ")
    assert "; state.1 " in said


def test_a_state_of_another_version_is_a_sentence_to_who_exports(town):
    config = town.config("a")
    checkpoint.save(config.peer.state, {}, {"learner": None})
    assert exported(config).startswith(f"error: the state in {config.peer.state} is of another version")


def test_who_exports_before_the_first_checkpoint_with_a_model_is_told_when_that_is_due(town):
    config = town.config("a", checkpoint=200.0)
    assert "start the peer with 'gadget peer run'" in exported(config)
    thread = in_a_thread(Peer(config))
    try:
        said = re.fullmatch(
            r"error: a runs, but has saved no model yet: it will in about (\d+) s, .*\n", exported(config)
        )
        assert said is not None
        assert 1 <= int(said[1]) <= 200
    finally:
        gadget("peer", "stop", config.peer.state.parent / "peer.toml")
        thread.join(60)
    assert gadget("peer", "export", config.peer.state.parent / "peer.toml").exit_code == 0


def test_who_exports_before_there_is_a_scale_is_told_what_the_peer_waits_for(town):
    config = town.config("a", scaling="max-abs", sites=2)
    thread = in_a_thread(Peer(config))
    try:
        said = exported(config)
    finally:
        gadget("peer", "stop", config.peer.state.parent / "peer.toml")
        thread.join(60)
    assert said == "error: a runs, but has no model yet: it is waiting for the statistics of 2 sites, 1 known\n"


def test_who_exports_while_checkpoints_fail_is_told_why(town, monkeypatch):
    def full(*_):
        raise checkpoint.CheckpointError("cannot save the state: No space left on device; free some space")

    config = town.config("a", checkpoint=200.0)
    peer = Peer(config)
    thread = in_a_thread(peer)
    try:
        monkeypatch.setattr(checkpoint, "save", full)
        peer.unsaved = True
        asyncio.run(until(lambda: "checkpoint" in peer.trouble))
        said = exported(config)
    finally:
        gadget("peer", "stop", config.peer.state.parent / "peer.toml")
        thread.join(60)
    assert said.startswith("error: a runs, but has saved no model: cannot save the state: No space left on device")


def test_what_is_said_of_a_revoked_certificate_makes_one_as_good_as_it_was(town):
    """With the hosts it was for: without them nobody who only knows an address could call it."""
    config = town.config("a")
    town.revoke("a", "a")
    said = exported(config)
    assert "a.pem (a) is revoked" in said
    command = shlex.split(said[said.index("'gadget ") + 1 : said.rindex("'")])
    assert command == ["gadget", "certs", "issue", "a", "--overwrite", "--host", "localhost", "--host", "127.0.0.1"]
    made = gadget(*command[1:], "--ca", town.folder / "ca")
    assert made.exit_code == 0, made.output
    assert Identity.load(*town.files("a").values()).name == "a"
