"""Ctrl-C and SIGTERM, exit codes, and what a repeated command does."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gadget_svm import GadgetSVC, load_model
from gadget_svm.cli import train_run
from gadget_svm.cli.app import app
from gadget_svm.cli.errors import RetryableError, Terminated, exit_code
from gadget_svm.cli.progress import Interruption
from gadget_svm.cli.signals import handled, raise_interrupt
from gadget_svm.cli.train import TrainRequest
from gadget_svm.cli.train_run import check_lost_rows
from gadget_svm.cluster import checkpoints
from gadget_svm.cluster.connection import ClusterError
from gadget_svm.data.files import DataFileError
from support.threaded_actors import Stage
from support.watch import watched

SRC = Path(__file__).parents[2] / "src"
START = "import os, signal, sys; signal.signal(signal.SIGINT, signal.{}); os.execvp(sys.argv[1], sys.argv[1:])"
"""Starts a program with SIGINT ignored or not, however the tests were started."""


@pytest.fixture
def rows(toy, tmp_path):
    path = tmp_path / "rows.csv"
    np.savetxt(path, np.column_stack([toy.X, toy.y]), delimiter=",", header="a,b,c,d,e,label", comments="")
    return path


def train(rows, out, sigint="SIG_DFL"):
    """A training without end."""
    command = [sys.executable, "-c", START.format(sigint), sys.executable, "-m", "gadget_svm", "train", str(rows)]
    command += ["--max-iter", "2000000000", "--stopping", "none", "--json", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def stopped(process, *signals):
    """Send signals once it trains; its exit code and what it printed."""
    try:
        for line in process.stderr:
            if line.startswith("iteration"):
                break
        time.sleep(0.2)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.2)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, stdout, stderr


@pytest.mark.parametrize(
    ("sigint", "signals", "code", "word"),
    [
        ("SIG_DFL", [signal.SIGINT], 130, "interrupted"),
        ("SIG_IGN", [signal.SIGINT, signal.SIGINT, signal.SIGTERM], 143, "terminated"),
    ],
    ids=["ctrl-c", "background job and sigterm"],
)
def test_signal_keeps_models(rows, tmp_path, sigint, signals, code, word):
    out = tmp_path / "out"
    found, stdout, stderr = stopped(train(rows, out, sigint), *signals)
    assert found == code, stderr
    run = json.loads(stdout)
    assert run["stopped_by"] == "interrupted"
    assert f"{word} at iteration {run['n_iter']:,}: the models so far are kept in {out}" in stderr
    assert load_model(out / "model.safetensors").n_iter_ == run["n_iter"] > 0


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_second_signal_aborts(number, kind):
    numbers, interruption = (signal.SIGINT, signal.SIGTERM), Interruption()
    before = [signal.getsignal(each) for each in numbers]
    interruption.stops_cleanly = True
    with handled(interruption.on_signal):
        signal.raise_signal(number)
        assert interruption.requested
        with pytest.raises(kind):
            signal.raise_signal(number)
    assert interruption.exit_code == 128 + number
    assert [signal.getsignal(each) for each in numbers] == before


def test_signal_before_training_aborts():
    interruption = Interruption()
    with handled(interruption.on_signal), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interruption = Interruption()
        with handled(interruption.on_signal):
            signal.raise_signal(signal.SIGINT)
            assert not interruption.requested
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_while_reading(rows, monkeypatch):
    monkeypatch.setattr("gadget_svm.cli.train_data.load", lambda *_: signal.raise_signal(signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)  # Ray's own, after a test that started one here
    result = CliRunner().invoke(app, ["train", str(rows)])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (143, "terminated")
    assert signal.getsignal(signal.SIGTERM) == before


def test_caller_handler_stays():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with handled(raise_interrupt):
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_fit_installs_no_handlers(toy):
    """Neither while it learns nor afterwards."""
    seen, numbers = [], (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]

    def observe(record, view):  # noqa: ARG001
        seen.append([signal.getsignal(number) for number in numbers])

    watched(GadgetSVC(3, max_iter=20, stopping=None), observe).fit(toy.X, toy.y)
    assert [*seen, [signal.getsignal(number) for number in numbers]] == [before] * (len(seen) + 1)
    assert seen


SIGNALLED = "import signal\ntry:\n    signal.raise_signal({})\nexcept BaseException as error:\n    {}\n"
"""A module during whose import a signal comes, and which hides it."""
HIDDEN = pytest.mark.parametrize("then", ["pass", "raise ImportError('numpy') from error"], ids=["caught", "wrapped"])
CODES = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])


@HIDDEN
@CODES
def test_signal_while_loading(number, then, tmp_path):
    (tmp_path / "typer.py").write_text(SIGNALLED.format(int(number), then))
    command = [sys.executable, "-c", START.format("SIG_DFL"), sys.executable, "-m", "gadget_svm", "topology", "ring"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{SRC}"}
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    word = {signal.SIGINT: "aborted", signal.SIGTERM: "terminated"}[number]
    assert (found.returncode, found.stdout, found.stderr) == (128 + number, "", f"{word}\n")


@HIDDEN
@CODES
def test_signal_while_importing(number, then, tmp_path, monkeypatch):
    (tmp_path / "signalled.py").write_text(SIGNALLED.format(int(number), then))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "signalled", raising=False)

    def show(*_):
        import signalled  # noqa: F401

        time.sleep(30)  # until the signal comes again

    monkeypatch.setattr("gadget_svm.spectral.summary", show)
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}[number]
    before = signal.signal(number, usual)
    try:
        assert CliRunner().invoke(app, ["topology", "ring"]).exit_code == 128 + number
        assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("lam"), 2),
        (DataFileError("damaged"), 2),
        (FileNotFoundError("no file"), 2),
        (PermissionError("--out"), 2),
        (ImportError("pip install"), 2),
        (ClusterError("all actors are lost"), 1),
        (TimeoutError("start_timeout"), 1),
        (ConnectionError("no Ray answers"), 1),
        (OSError(errno.ENOSPC, "no space left"), 1),
        (checkpoints.FolderInUseError("process 1 is running"), 1),
        (RetryableError("a peer"), 1),
        (MemoryError(), 1),
        (KeyboardInterrupt(), 130),
        (Terminated(), 143),
    ],
)
def test_exit_codes(error, code, rows, monkeypatch):
    def fail(*_):
        raise error

    assert exit_code(error) == code
    monkeypatch.setattr("gadget_svm.cli.train_data.load", fail)
    assert CliRunner().invoke(app, ["train", str(rows)]).exit_code == code


def test_require_all_rows(capsys):
    lost = {"event": "lost", "actor": 1, "nodes": [2, 3], "iteration": 20}
    back = {"event": "restarted", "actor": 1, "nodes": [2, 3], "iteration": 40}
    strict, lenient = TrainRequest(["x"], require_all_rows=True), TrainRequest(["x"])
    assert check_lost_rows(strict, {"events": [lost]}) == 3
    said = capsys.readouterr().err
    assert "lacks the rows of 2 nodes that were lost and did not come back (2, 3)" in said
    assert "--resume auto --checkpoint-dir DIR" in said
    assert check_lost_rows(lenient, {"events": [lost]}) == 0
    assert check_lost_rows(strict, {"events": [lost, back]}) == 0
    assert check_lost_rows(strict, {"events": []}) == 0


def test_exit_code_3_after_a_loss(toy, rows, monkeypatch):
    """Actors in threads, one of which dies."""
    stage = Stage(monkeypatch, toy)
    stage.once(lambda _actor, method, _args: method == "certify", lambda: stage.kill(1))
    options = ["train", str(rows), "--nodes", "6", "--engine", "ray", "--engine-option", "actors=3", "--lam", "0.05"]
    options += ["--engine-option", "timeout=300", "--max-iter", "60", "--require-all-rows", "--json"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 3, result.stderr
    assert "lacks the rows of 2 nodes" in result.stderr
    assert json.loads(result.stdout)["events"][0]["event"] == "lost"


def test_sigterm_saves_what_the_actors_are_at(toy, tmp_path, monkeypatch):
    """As SystemExit in the driver, which is what a script without a handler of its own gets."""
    stage = Stage(monkeypatch, toy)

    def waiting(_refs):
        if stage.runtime is not None and stage.runtime.t >= 30 and stage.ray.asked[-1] in ("advance", "receive"):
            stage.ray.waiting = lambda *_: None
            raise SystemExit(143)

    stage.ray.waiting = waiting
    with pytest.raises(SystemExit):
        stage.fit(max_iter=100000, options={"checkpoint_dir": str(tmp_path), "checkpoint_every": 20})
    assert checkpoints.read_run(tmp_path)["t"] == stage.runtime.t > 30


def test_resume_auto_starts_or_continues(toy, tmp_path, monkeypatch):
    stage = Stage(monkeypatch, toy)
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 10, "resume": "auto"}
    stage.fit(max_iter=25, options=options)
    assert checkpoints.read_run(tmp_path)["t"] == 25
    model = stage.fit(max_iter=40, options=options)  # the same call: it continues
    assert not [*tmp_path.glob("former-*")]
    assert model.n_iter_ == 40
    assert model.history_[0]["iteration"] == 30
    np.testing.assert_array_equal(model.node_coef_, stage.fit(engine="local", max_iter=40).node_coef_)
    again = stage.fit(max_iter=40, options=options)  # and there is nothing left to do
    np.testing.assert_array_equal(again.node_coef_, model.node_coef_)
    with pytest.raises(ValueError, match="of another run"):
        stage.fit(max_iter=40, options=options, random_state=6)


def test_resume_is_true_false_or_auto(toy):
    for options, said in (
        ({"resume": "perhaps", "checkpoint_dir": "."}, "resume must be True, False or 'auto', got 'perhaps'"),
        ({"resume": "auto"}, "resume=auto needs checkpoint_dir"),
    ):
        with pytest.raises(ValueError, match=said):
            GadgetSVC(engine="ray", engine_options=options).fit(toy.X, toy.y)


def test_signal_after_training(rows, tmp_path, monkeypatch):
    """While models are judged: files and JSON are written all the same."""

    def signalled(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return summarise(*arguments)

    summarise = train_run.summarise
    monkeypatch.setattr(train_run, "summarise", signalled)
    found = CliRunner().invoke(app, ["train", str(rows), "--max-iter", "5", "--json", "--out", str(tmp_path / "out")])
    assert found.exit_code == 143
    assert json.loads(found.stdout)["history"][-1]["iteration"] == 5
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["stopped_by"] == "max_iter"
