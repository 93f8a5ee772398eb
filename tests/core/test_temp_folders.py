"""Temporary folders of processes that were killed: removed at the next start, and no others."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gadget_svm.core.temp_folders import LOCK, Scratch

OWNER = """
import subprocess, sys
from gadget_svm.core.temp_folders import Scratch
scratch = Scratch()
(scratch.path / "r").mkdir()
agent = subprocess.Popen([sys.executable, sys.argv[1], f"--session-dir={scratch.path}/r/session"])
tail = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", f"{scratch.path}/r/log"])
titled = "import sys, time; log = open(sys.argv[1], sys.argv[2]); print(flush=True); time.sleep(600)"
(scratch.path / "r" / "agent.log").touch()
writer, reader = (
    subprocess.Popen(
        ["ray::Agent", "-c", titled, f"{scratch.path}/r/agent.log", mode], executable=sys.executable,
        stdout=subprocess.PIPE,
    )
    for mode in "ar"
)
for process in (writer, reader):
    process.stdout.readline()
print(scratch.path, agent.pid, tail.pid, writer.pid, reader.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owners(tmp_path, monkeypatch):
    """Starts processes that own a folder and a Ray agent; ends what is left of them."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = tmp_path / "lib" / "ray" / "agent.py"
    program.parent.mkdir(parents=True)
    program.write_text("import time\ntime.sleep(600)\n")
    started, left = [], []

    def start():
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        started.append(owner)
        folder, *processes = owner.stdout.readline().split()
        left.extend(map(int, processes))
        return owner, Path(folder), *map(int, processes)

    yield start
    for process in left:
        if runs(process):
            os.kill(process, 9)
    for owner in started:  # last: its children hold its pipes open
        owner.kill()
        owner.communicate()


def ends(process, within=30.0):
    """Whether a process that was killed is gone after a moment."""
    end = time.monotonic() + within
    while runs(process) and time.monotonic() < end:
        time.sleep(0.05)
    return not runs(process)


def runs(process):
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
def test_what_a_killed_process_owned_is_removed_and_nothing_else(owners, tmp_path):
    dead, folder, agent, tail, writer, reader = owners()
    _, other, other_agent, _, other_writer, _ = owners()
    foreign = tmp_path / "gadget-of-somebody"
    foreign.mkdir()
    dead.kill()
    dead.wait()
    assert folder.exists()
    assert runs(agent)
    with Scratch() as scratch:
        assert not folder.exists()
        assert ends(agent)
        assert ends(writer)  # its title hides its command line, but it has a log open
        assert runs(tail)  # it only reads a file there
        assert runs(reader)
        assert other.exists()
        assert runs(other_agent)
        assert runs(other_writer)
        assert foreign.exists()
        assert (scratch.path / LOCK).exists()
    assert not scratch.path.exists()


def test_noted_sessions_are_the_owners_too(owners, tmp_path):
    _, folder, agent, *_ = owners()
    dead = Scratch()
    dead.note_session(str(folder))  # as if it were the session of a Ray in another folder
    os.close(dead._lock)  # as the kernel does when a process dies
    Scratch().close()
    assert not dead.path.exists()
    assert ends(agent)
    assert folder.exists()
    assert tmp_path
