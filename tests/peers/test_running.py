"""A peer as a process: what the signals of a terminal do to it."""

import json
import signal
import subprocess
import sys

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")

from gadget_svm.peers import checkpoint

START = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.{}); os.execvp(sys.argv[1], sys.argv[1:])"
"""However the tests themselves were started: nohup has SIG_IGN."""


def signalled(config, *signals, hangup="SIG_DFL"):
    """The exit code and the log of one that gets these signals once it is up."""
    command = [sys.executable, "-m", "gadget_svm", "peer", "run", str(config.peer.state.parent / "peer.toml")]
    start = [sys.executable, "-c", START.format(hangup)]
    with subprocess.Popen([*start, *command], stderr=subprocess.PIPE, text=True) as process:
        try:
            log = []
            for line in process.stderr:
                log.append(json.loads(line))
                if log[-1]["event"] == "up":
                    for each in signals:
                        process.send_signal(each)
            return process.wait(120), {record["event"]: record.get("fields", {}) for record in log}
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_closed_terminal_lets_a_peer_leave_as_other_signals_do(town, number):
    config = town.config("a", level="info")
    code, log = signalled(config, number)
    assert code == 0
    assert log["leaving"]["why"] == f"signal {number.name}"
    assert "left" in log
    assert checkpoint.load(config.peer.state).about["learner"]["t"] == log["leaving"]["ticks"]


def test_one_that_was_started_to_outlive_its_terminal_does(town):
    code, log = signalled(town.config("a", level="info"), signal.SIGHUP, signal.SIGTERM, hangup="SIG_IGN")
    assert code == 0
    assert log["leaving"]["why"] == "signal SIGTERM"
