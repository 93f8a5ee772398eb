"""Ray on several machines: nodes in network namespaces of their own, an actor on each. One of them dies as a whole."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from gadget_svm import GadgetSVC

pytest.importorskip("ray", reason="Ray is not installed: pip install 'gadget-svm[ray]'")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces take root and ip"
)

HOSTS, LAM = 3, 0.05
REFUSALS = ("not permitted", "permission denied", "not supported", "unknown device type")
"""What `ip` says where namespaces and bridges are not to be had."""
ORPHANS_DIE = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
"""PR_SET_PDEATHSIG: nothing outlives the tests, however they end."""
DRIVER = """
import json, os, sys, time
import numpy as np
from gadget_svm import GadgetSVC, Observer

order = json.load(open(sys.argv[1]))
rows = np.load(order["rows"])

class Kill(Observer):
    def on_record(self, record, view):
        if record["iteration"] != 20:
            return
        open(order["out"] + ".reached", "w").close()
        while order["wait"] and not os.path.exists(order["out"] + ".done"):
            time.sleep(0.05)
        for pid in order["kill"]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        time.sleep(5 * bool(order["kill"]))  # an actor ends a moment after the machine it was on

model = GadgetSVC(**order["settings"], engine="ray", engine_options=order["options"], observers=[Kill()])
model.fit(rows["X"], rows["y"], sites=rows["sites"])
np.savez(order["out"], coef=model.node_coef_, intercept=model.node_intercept_)
json.dump(model.history_, open(order["out"] + ".json", "w"))
"""


def run(*command):
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def session_of(leader):
    """All processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            rest = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(rest[3]) == leader and rest[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def until(true, seconds, log):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.1)


class Machines:
    """Namespaces on one bridge, with a Ray node in each."""

    def __init__(self, folder):
        self.folder, self.tag, self.net = folder, f"gr{os.getpid() % 100000}", f"10.199.{os.getpid() % 250}"
        self.nodes = []
        self.env = {
            **os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }  # fmt: skip

    def __enter__(self):
        try:
            self._hosts()
            for i in range(HOSTS):
                self._ray(i)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _hosts(self):
        try:
            run("ip", "link", "add", self.tag, "type", "bridge")
            run("ip", "link", "set", self.tag, "up")
            for i in range(HOSTS):
                self._host(i)
        except subprocess.CalledProcessError as refused:
            said = refused.stderr.decode()
            if any(word in said.lower() for word in REFUSALS):
                pytest.skip(f"no network namespaces here: {said}")
            raise AssertionError(said) from refused

    def _host(self, i):
        name = f"{self.tag}n{i}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "link", "set", name, "master", self.tag, "up")
        for words in (f"addr add {self.net}.{i + 1}/24 dev eth0", "link set eth0 up", "link set lo up"):
            run("ip", "-n", name, *words.split())

    def _ray(self, i):
        place = ["--head", "--port", "6379"] if i == 0 else ["--address", f"{self.net}.1:6379"]
        command = [
            "start", *place, "--block", "--node-ip-address", f"{self.net}.{i + 1}", "--num-cpus", "1",
            "--object-store-memory", "80000000", "--temp-dir", f"{self.folder}/{i}", "--disable-usage-stats",
        ]  # fmt: skip
        command += ["--include-dashboard", "false"] if i == 0 else []
        self.nodes.append(
            self.popen(i, [sys.executable, "-m", "ray.scripts.scripts", *command], self.folder / f"log{i}")
        )
        self._until_up(i)

    def _until_up(self, i):
        """Ray says so itself, in what it prints."""
        log = self.folder / f"log{i}"
        until(lambda: "Ray runtime started" in log.read_text(), 90, log)

    def popen(self, i, command, log):
        inside = [sys.executable, "-c", ORPHANS_DIE, "ip", "netns", "exec", f"{self.tag}n{i}", *command]
        with log.open("wb") as out:
            return subprocess.Popen(inside, stdout=out, stderr=out, env=self.env, start_new_session=True)

    def cut(self, i):
        """Pull the plug of a machine's network."""
        run("ip", "link", "set", f"{self.tag}n{i}", "down")

    @contextmanager
    def wall(self, i, j):
        """Nothing passes between two machines, as long as it stands; all others reach both."""
        rules = [("INPUT", "-s"), ("OUTPUT", "-d")]
        inside = ["ip", "netns", "exec", f"{self.tag}n{i}", "iptables"]
        try:
            for chain, of in rules:
                run(*inside, "-A", chain, of, f"{self.net}.{j + 1}", "-j", "DROP")
            yield
        finally:
            for chain, _ in rules:
                run(*inside, "-F", chain)

    def fit(self, name, toy, *, kill=(), then=None, actors=HOSTS, timeout=20, **settings):
        """A training whose driver stands on the first machine, and what happens in its twentieth iteration; there it
        waits for ``then``, if there is one."""
        order, rows, out = (self.folder / f"{name}.{kind}" for kind in ("order", "npz", "out"))
        np.savez(rows, X=toy.X, y=toy.y, sites=np.arange(60) % 6)
        options = {"address": f"{self.net}.1:6379", "actors": actors, "timeout": timeout}
        said = {"rows": str(rows), "out": str(out), "settings": settings, "options": options, "kill": list(kill)}
        said["wait"] = then is not None
        order.write_text(json.dumps(said))
        log = self.folder / f"{name}.log"
        driver = self.popen(0, [sys.executable, "-c", DRIVER, str(order)], log)
        try:
            if then is not None:
                until(Path(f"{out}.reached").exists, 120, log)
                then()
                Path(f"{out}.done").touch()
            assert driver.wait(180) == 0, log.read_text()[-3000:]
        finally:
            if driver.poll() is None:
                driver.kill()
        found = np.load(f"{out}.npz")
        return found["coef"], found["intercept"], json.loads(Path(f"{out}.json").read_text())

    def __exit__(self, *_):
        for node in reversed(self.nodes):
            for pid in session_of(node.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            node.wait(20)
        names = [f"{self.tag}n{i}" for i in range(HOSTS)]
        links = [f"link delete {name}" for name in [*names, self.tag]]  # else they stay as long as a socket lingers
        for words in links + [f"netns delete {name}" for name in names]:
            subprocess.run(["ip", *words.split()], capture_output=True, timeout=30, check=False)


@pytest.fixture(scope="module")
def machines():
    folder = Path(tempfile.mkdtemp(prefix="r"))
    try:
        with Machines(folder) as there:
            yield there
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("algorithm", ["gadget", "auto"])
def test_several_machines_have_the_simulators_models(toy, machines, algorithm):
    settings = {"lam": LAM, "random_state": 3, "algorithm": algorithm, "stopping": None, "max_iter": 40}
    coef, intercept, _ = machines.fit(algorithm, toy, **settings)
    local = GadgetSVC(**settings).fit(toy.X, toy.y, sites=np.arange(60) % 6)
    np.testing.assert_array_equal(local.node_coef_, coef)
    np.testing.assert_array_equal(local.node_intercept_, intercept)


@pytest.mark.skipif(shutil.which("iptables") is None, reason="a wall between two machines takes iptables")
def test_two_machines_that_do_not_reach_each_other(toy, machines):
    """All actors answer the driver, and mail between two of them does not arrive: one of the two is left behind."""
    settings = {"lam": LAM, "random_state": 3, "topology": "complete", "stopping": None, "record_every": 20}
    try:
        with machines.wall(1, 2):
            pass
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"no iptables here: {refused.stderr}")
    with ExitStack() as stack:

        def build():
            stack.enter_context(machines.wall(1, 2))

        found = machines.fit("wall", toy, then=build, timeout=8, max_iter=600, **settings)
    judge(toy, *found, why="its mail does not arrive")


def test_a_machine_dies_and_another_is_cut_off(toy, machines):
    """The nodes on the others end within 1 % of the optimum of their rows. Last here: dead machines stay dead."""
    settings = {"lam": LAM, "random_state": 3, "topology": "complete", "stopping": None, "record_every": 20}
    victims = session_of(machines.nodes[2].pid)
    judge(toy, *machines.fit("death", toy, kill=victims, max_iter=600, **settings))
    judge(toy, *machines.fit("cut", toy, then=lambda: machines.cut(1), actors=2, max_iter=600, **settings))


def judge(toy, coef, intercept, history, why=""):
    (event,) = [event for record in history for event in record.get("events", [])]
    assert event["event"] == "lost"
    assert why in event["why"]
    first, last = event["nodes"]
    here = [i for i in range(6) if not first <= i <= last]
    rows = np.isin(np.arange(60) % 6, here)
    best = GadgetSVC(1, lam=LAM, stopping="gap", tol=1e-4, random_state=0).fit(toy.X[rows], toy.y[rows])

    def objective(w, b):
        y = np.where(toy.y[rows] == 1, 1, -1)
        return LAM / 2 * (w @ w + b * b) + np.maximum(0, 1 - y * (toy.X[rows] @ w + b)).mean()

    worst = max(objective(coef[i], intercept[i]) for i in here)
    assert worst < 1.01 * objective(best.coef_[0], best.intercept_[0])
