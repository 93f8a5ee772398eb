"""The job of docs/how-to/ray-kubernetes.md: its command is valid, and its script repeats what is worth a retry."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from gadget_svm.cli import errors
from gadget_svm.cli.app import app

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; Ray brings it")
DOCS = Path(__file__).parents[2] / "docs"
MANIFEST = re.search(
    r"```yaml\n(.*?)```", (DOCS / "how-to" / "ray-kubernetes.md").read_text(encoding="utf-8"), re.DOTALL
)[1]


@pytest.fixture
def run(tmp_path):
    """Run the script with a `gadget` that returns these codes in turn, and with a `sleep` that does not wait."""
    (config, _) = yaml.safe_load_all(MANIFEST)
    (tmp_path / "train.sh").write_text(config["data"]["train.sh"])

    def start(*codes, signalled=False):
        """The exit code, and how often `gadget` was called."""
        (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
        programs = {
            "gadget": 'echo >> calls; read code < codes; sed -i 1d codes; [ -z "$KILL" ] || kill $PPID; exit $code',
            "sleep": "exit 0",
        }
        for name, text in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        (tmp_path / "calls").write_text("")
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "KILL": "1" * signalled}
        done = subprocess.run(["sh", "train.sh"], cwd=tmp_path, env=environment, timeout=60, check=False)
        return done.returncode, len((tmp_path / "calls").read_text())

    return start


@pytest.mark.parametrize("code", [0, errors.WRONG_USE, errors.ROWS_LOST, errors.INTERRUPTED, errors.TERMINATED])
def test_only_failures_are_repeated(run, code):
    assert run(code) == (code, 1)
    assert run(errors.FAILED, errors.FAILED, code) == (code, 3)


def test_repetitions_end(run):
    assert run(*[errors.FAILED] * 9) == (errors.FAILED, 5)


def test_nothing_is_repeated_after_sigterm(run):
    assert run(errors.TERMINATED, signalled=True) == (errors.TERMINATED, 1)
    assert run(errors.FAILED, 0, signalled=True) == (errors.TERMINATED, 1)  # it failed just as it was to stop


def test_the_command_is_one_that_gadget_takes():
    (config, job) = yaml.safe_load_all(MANIFEST)
    found = re.search(r"gadget train (.*?)\n +code=", config["data"]["train.sh"].replace("\\\n", ""), re.DOTALL)
    context = get_command(app).commands["train"].make_context("train", shlex.split(found[1]))
    assert (context.params["resume"], context.params["require_all_rows"]) == ("auto", True)
    (container,) = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert container["env"][0]["name"] == "RAY_JOB_STOP_WAIT_TIME_S"
    assert job["spec"]["entrypoint"] == "sh /job/train.sh"


def test_the_reference_lists_all_exit_codes():
    listed = re.findall(
        r"^\| (\d+) \|", (DOCS / "reference" / "exit-codes.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    codes = (0, errors.FAILED, errors.WRONG_USE, errors.ROWS_LOST, errors.INTERRUPTED, errors.TERMINATED)
    assert [int(code) for code in listed] == list(codes)
