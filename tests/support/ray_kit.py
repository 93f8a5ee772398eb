"""What the tests on a real Ray share: Ray itself, fits in the middle of which something happens, and files of rows."""

import os
import shutil
import signal
import tempfile
import time
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from gadget_svm import GadgetSVC
from gadget_svm.cluster.driver import RayRuntime
from support.watch import watched

LAM = 0.05
SITES = np.arange(60) % 7


@contextmanager
def own_ray():
    """Ray on loopback, in a folder with a short name, as sockets in it have long ones."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'gadget-svm[ray]'")
    folder = tempfile.mkdtemp(prefix="r")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for attempt in range(3):
        try:
            context = ray.init(
                address="local", num_cpus=4, include_dashboard=False, object_store_memory=150 * 2**20,
                _temp_dir=folder, _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="ERROR",
            )  # fmt: skip
            break
        except Exception as error:  # of no class of its own: Ray gives itself 30 s, which a busy machine may not have
            ray.shutdown()
            if attempt == 2 or "timed out" not in str(error):
                raise
    try:
        yield context
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def noted(monkeypatch, also=None):
    """The runtimes of the fits to come, so that a test can get at their actors' processes."""
    begun, begin = [], RayRuntime.begin

    def and_note(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        begun.append(self)
        if also is not None:
            also(self)

    monkeypatch.setattr(RayRuntime, "begin", and_note)
    return begun


def kill(runtime, actor, number=signal.SIGKILL):
    os.kill(pid_of(runtime, actor), number)


def pid_of(runtime, actor):
    return runtime.ray.get(runtime.pool.actors[actor].ping.remote())


def network(**settings):
    """Seven nodes on three actors; what is not said otherwise."""
    options = {"actors": 3, "timeout": 20, **settings.pop("options", {})}
    given = {"topology": "complete", "lam": LAM, "random_state": 5, "stopping": None, "record_every": 10, **settings}
    engine = given.pop("engine", "ray")
    return GadgetSVC(7, engine=engine, engine_options=options if engine == "ray" else None, **given)


def observed(toy, model, observe):
    """The model, fitted; ``observe(record)`` sees its records."""
    return watched(model, lambda record, _: observe(record)).fit(toy.X, toy.y, sites=SITES)


def events_of(history):
    return [event for record in history for event in record.get("events", [])]


def excess(toy, model, rows, nodes):
    """The objective of the worst of these nodes above the optimum of these rows, as a part of it."""
    best = GadgetSVC(1, lam=LAM, random_state=0, stopping="gap", tol=1e-4).fit(toy.X[rows], toy.y[rows])

    def objective(w, b):
        y = np.where(toy.y[rows] == 1, 1, -1)
        return LAM / 2 * (w @ w + b * b) + np.maximum(0, 1 - y * (toy.X[rows] @ w + b)).mean()

    worst = max(objective(model.node_coef_[i], model.node_intercept_[i]) for i in nodes)
    return worst / objective(best.coef_[0], best.intercept_[0]) - 1


def files_of(toy, folder, parts=5):
    """Shards as svmlight files."""
    paths = []
    for i, rows in enumerate(np.array_split(np.arange(60), parts)):
        path = folder / f"part-{i}.svm"
        dump_svmlight_file(toy.X[rows], toy.y[rows], str(path), zero_based=False)
        paths.append(path)
    return paths


def until(true, seconds):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not so within {seconds} s"
        time.sleep(0.2)
