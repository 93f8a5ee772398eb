"""The Ray engine on a real Ray of its own: bit for bit the simulator, and what happens when actors die."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gadget_svm import Gadget, GadgetSVC, load_model
from gadget_svm.algorithms import Pdmm

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'gadget-svm[ray]'")

pytestmark = pytest.mark.xdist_group("ray")  # one Ray is enough
LAM = 0.05
SETTINGS = {"n_nodes": 7, "lam": LAM, "random_state": 5, "n_jobs": 1}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Ray once for all tests here: on loopback, in a folder with a short name, as sockets in it have long ones."""
    folder = tempfile.mkdtemp(prefix="r")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local", num_cpus=4, include_dashboard=False, object_store_memory=150 * 2**20, _temp_dir=folder,
        _node_ip_address="127.0.0.1", log_to_driver=False, logging_level="ERROR",
    )  # fmt: skip
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def fitted(toy, engine, *, y=None, weight=None, **settings):
    model = GadgetSVC(engine=engine, **{**SETTINGS, **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(toy.X, toy.y if y is None else y, sample_weight=weight)


def told(model):
    """The history without clocks."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in model.history_]


def assert_same(one, other):
    for name in ("coef_", "intercept_", "node_coef_", "node_intercept_", "node_last_coef_", "node_last_intercept_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name, strict=True)
    assert told(one) == told(other)
    for name in ("n_iter_", "converged_", "stopped_by_", "movement_", "gap_bound_", "gossip_"):
        assert getattr(one, name) == getattr(other, name), name


GADGET = {"algorithm": "gadget", "stopping": None, "max_iter": 40}
PDMM = {"algorithm": Pdmm(), "stopping": None, "max_iter": 40}
CERTIFIED = {"algorithm": "auto", "stopping": "certified", "tol": 0.01}
DIFFUSION = {"algorithm": Gadget(gossip="diffusion", local_steps=2), "stopping": "objective", "max_iter": 150}


@pytest.mark.parametrize(
    ("settings", "actors"),
    [(GADGET, 1), (GADGET, 3), (DIFFUSION, 2), (PDMM, 2), (CERTIFIED, 1), (CERTIFIED, 3)],
    ids=["gadget-1", "gadget-3", "gadget-diffusion-2", "pdmm-2", "certified-1", "certified-3"],
)
def test_bit_for_bit_the_simulator(toy, settings, actors):
    """For any number of actors: models, history, messages, bytes and certificates."""
    local = fitted(toy, "local", **settings)
    assert_same(local, fitted(toy, "ray", engine_options={"actors": actors}, **settings))


def test_several_classes_and_weighted_rows(toy):
    settings = {"algorithm": "auto", "stopping": None, "max_iter": 30, "class_weight": "balanced"}
    weight = np.linspace(0.1, 2, 60)
    local, on_ray = (
        fitted(toy, engine, y=toy.three, weight=weight, engine_options=options, **settings)
        for engine, options in (("local", None), ("ray", {"actors": 2}))
    )
    assert_same(local, on_ray)


def test_batches_go_on_where_they_were(toy):
    local, on_ray = (
        GadgetSVC(engine=engine, **SETTINGS).partial_fit(toy.X[:30], toy.y[:30], classes=[0, 1])
        for engine in ("local", "ray")
    )
    for model in (local, on_ray):
        model.partial_fit(toy.X[30:], toy.y[30:])
    assert_same(local, on_ray)


def files_of(toy, folder, parts=5):
    """Shards as files of three formats, on all of which the readers agree."""
    from sklearn.datasets import dump_svmlight_file

    paths = []
    for i, rows in enumerate(np.array_split(np.arange(60), parts)):
        path = folder / f"part-{i}.svm"
        dump_svmlight_file(toy.X[rows], toy.y[rows], str(path), zero_based=False)
        paths.append(path)
    return paths


@pytest.mark.parametrize("algorithm", ["auto", "gadget"])
def test_files_are_read_by_the_actors(toy, tmp_path, algorithm):
    """The models are those of the same files read here; the objective is summed by actors, to the last bits."""
    paths = files_of(toy, tmp_path)
    settings = {"lam": LAM, "random_state": 1, "algorithm": algorithm, "stopping": None, "max_iter": 30}
    local = GadgetSVC(**settings).fit_shards(paths)
    places = [f"file://{path}" if i == 0 else path for i, path in enumerate(paths)]
    on_ray = GadgetSVC(engine="ray", engine_options={"actors": 2}, **settings).fit_shards(places)
    np.testing.assert_array_equal(local.node_coef_, on_ray.node_coef_)
    np.testing.assert_array_equal(local.coef_, on_ray.coef_)
    np.testing.assert_array_equal(local.intercept_, on_ray.intercept_)
    assert local.history_[-1]["bytes"] == on_ray.history_[-1]["bytes"]
    for name in ("objective", "worst_objective", "error"):
        assert local.history_[-1][name] == pytest.approx(on_ray.history_[-1][name], rel=1e-12)
    assert (on_ray.predict(toy.X) == local.predict(toy.X)).all()


def test_a_missing_file_is_named(tmp_path):
    model = GadgetSVC(engine="ray", engine_options={"actors": 1})
    with pytest.raises(FileNotFoundError, match="absent"):
        model.fit_shards([tmp_path / "absent.svm", tmp_path / "absent too.svm"])


def test_a_ray_dataset(toy):
    pytest.importorskip("pandas")
    import pandas as pd
    import ray.data

    frame = pd.DataFrame(toy.X, columns=list("abcde")).assign(label=toy.y)
    settings = {"lam": LAM, "random_state": 1, "stopping": None, "max_iter": 20, "algorithm": "auto"}
    cuts = [60 * i // 4 for i in range(5)]
    pairs = [(toy.X[lo:hi], toy.y[lo:hi]) for lo, hi in pairwise(cuts)]
    local = GadgetSVC(**settings).fit_shards(pairs)
    dataset = ray.data.from_pandas(frame)
    model = GadgetSVC(n_nodes=4, engine="ray", engine_options={"actors": 2}, **settings)
    np.testing.assert_array_equal(local.node_coef_, model.fit_shards(dataset).node_coef_)
    with pytest.raises(ValueError, match="engine='ray'"):
        GadgetSVC().fit_shards(dataset)


@pytest.fixture
def runtimes(monkeypatch):
    """The runtimes of the fits to come, so that a test can get at their actors' processes."""
    from gadget_svm.runtimes.ray_engine import RayRuntime

    begun, begin = [], RayRuntime.begin

    def noted(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        begun.append(self)

    monkeypatch.setattr(RayRuntime, "begin", noted)
    return begun


def struck(toy, runtimes, number, *, actor=1, at=20, max_iter=500, options=None, **settings):
    """A model of seven nodes on three actors, one of which gets a signal in the middle."""
    model = GadgetSVC(
        7, topology="complete", lam=LAM, random_state=5, stopping=None, max_iter=max_iter, record_every=10,
        engine="ray", engine_options={"actors": 3, "timeout": 20, **(options or {})}, **settings,
    )  # fmt: skip

    def observe(record, mean):  # noqa: ARG001
        if record["iteration"] == at:
            os.kill(runtimes[-1].pids[actor], number)

    return model.fit_observed(toy.X, toy.y, sites=np.arange(60) % 7, observe=observe)


def happened(model):
    return [event for record in model.history_ for event in record.get("events", [])]


def excess(toy, model, rows, nodes):
    """The objective of the worst of these nodes above the optimum of these rows, as a part of it."""
    best = GadgetSVC(1, lam=LAM, random_state=0, stopping="gap", tol=1e-4).fit(toy.X[rows], toy.y[rows])

    def objective(w, b):
        y = np.where(toy.y[rows] == 1, 1, -1)
        return LAM / 2 * (w @ w + b * b) + np.maximum(0, 1 - y * (toy.X[rows] @ w + b)).mean()

    worst = max(objective(model.node_coef_[i], model.node_intercept_[i]) for i in nodes)
    return worst / objective(best.coef_[0], best.intercept_[0]) - 1


SURVIVORS = [0, 1, 4, 5, 6]  # actor 1 of three holds the nodes 2 and 3


@pytest.mark.parametrize(
    ("number", "options", "why"),
    [(signal.SIGKILL, {}, "Died"), (signal.SIGSTOP, {"timeout": 6}, "no answer")],
    ids=["killed", "hung"],
)
def test_the_others_go_on_to_their_optimum(toy, runtimes, number, options, why):
    """An actor that dies, or says nothing any more, is left behind with its rows; the history says so."""
    model = struck(toy, runtimes, number, options=options)
    (event,) = happened(model)
    assert event["event"] == "lost"
    assert event["actor"] == 1
    assert event["nodes"] == [2, 3]
    assert why in event["why"]
    assert event["iteration"] >= 20
    assert model.n_iter_ == 500
    rows = np.flatnonzero(np.isin(np.arange(60) % 7, SURVIVORS))
    assert excess(toy, model, rows, SURVIVORS) < 0.01
    np.testing.assert_array_equal(runtimes[-1].here(), np.isin(np.arange(7), SURVIVORS))


def test_push_sum_says_what_mass_was_lost(toy, runtimes):
    model = struck(toy, runtimes, signal.SIGKILL, algorithm="gadget", max_iter=60)
    (event,) = happened(model)
    assert 0 < event["mass_lost"] < 60  # of the 60 rows


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_lost_actor_is_restarted(toy, runtimes, tmp_path, checkpoint):
    """From its last checkpoint where there is one; at the end all nodes have the optimum of all rows."""
    options = {"restart": True}
    if checkpoint:
        options |= {"checkpoint_dir": str(tmp_path / "kept"), "checkpoint_every": 5}
    model = struck(toy, runtimes, signal.SIGKILL, options=options, max_iter=800)
    lost, back = happened(model)
    assert (lost["event"], back["event"]) == ("lost", "restarted")
    assert back["nodes"] == [2, 3]
    assert (back["from"] is not None) == checkpoint
    assert runtimes[-1].here().all()
    assert excess(toy, model, np.arange(60), range(7)) < 0.01


class DeadError(Exception):
    """The driver's end."""


@pytest.mark.parametrize("algorithm", ["auto", "gadget"])
def test_a_run_whose_driver_died_is_resumed(toy, tmp_path, algorithm):
    """Bit for bit as if it had not been interrupted."""
    settings = {**SETTINGS, "algorithm": algorithm, "stopping": None, "max_iter": 40, "record_every": 10}
    options = {"actors": 2, "checkpoint_dir": str(tmp_path), "checkpoint_every": 10}

    def die(record, mean):  # noqa: ARG001
        if record["iteration"] == 30:
            raise DeadError

    with pytest.raises(DeadError):
        GadgetSVC(engine="ray", engine_options=options, **settings).fit_observed(toy.X, toy.y, observe=die)
    assert sorted(tmp_path.glob("block-*"))
    resumed = GadgetSVC(engine="ray", engine_options={**options, "resume": True}, **settings).fit(toy.X, toy.y)
    whole = fitted(toy, "local", **settings)
    np.testing.assert_array_equal(whole.node_coef_, resumed.node_coef_)
    assert told(whole)[-1] == told(resumed)[-1]
    assert resumed.n_iter_ == 40
    other = GadgetSVC(engine="ray", engine_options={**options, "resume": True}, **{**settings, "random_state": 9})
    with pytest.raises(ValueError, match="of another run"):
        other.fit(toy.X, toy.y)


def test_a_folder_of_an_earlier_run_is_set_aside_and_the_end_is_saved(toy, tmp_path):
    settings = {**SETTINGS, "algorithm": "pdmm", "stopping": None}
    options = {"actors": 2, "checkpoint_dir": str(tmp_path), "checkpoint_every": 10}
    GadgetSVC(engine="ray", engine_options=options, **{**settings, "max_iter": 25}).fit(toy.X, toy.y)
    assert json.loads((tmp_path / "run.json").read_text())["t"] == 25  # its end, too
    GadgetSVC(engine="ray", engine_options=options, **{**settings, "max_iter": 5}).fit(toy.X, toy.y)
    (former,) = tmp_path.glob("former-*")
    assert json.loads((former / "run.json").read_text())["t"] == 25
    longer = {**settings, "max_iter": 12}
    resumed = GadgetSVC(engine="ray", engine_options={**options, "resume": True}, **longer).fit(toy.X, toy.y)
    np.testing.assert_array_equal(fitted(toy, "local", **longer).node_coef_, resumed.node_coef_)


def test_a_run_that_had_lost_an_actor_is_resumed_with_all(toy, runtimes, tmp_path):
    """The driver dies after one of its actors: at the end all nodes have the optimum of all rows."""
    settings = {"topology": "complete", "lam": LAM, "random_state": 5, "stopping": None, "record_every": 20}
    options = {"actors": 3, "checkpoint_dir": str(tmp_path), "checkpoint_every": 10}

    def strike(record, mean):  # noqa: ARG001
        if record["iteration"] == 40:
            os.kill(runtimes[-1].pids[1], signal.SIGKILL)
        if record["iteration"] == 100:
            raise DeadError

    model = GadgetSVC(7, engine="ray", engine_options=options, max_iter=800, **settings)
    with pytest.raises(DeadError):
        model.fit_observed(toy.X, toy.y, observe=strike)
    about = json.loads((tmp_path / "run.json").read_text())
    assert about["kept"][1] < about["t"] == about["kept"][0] == about["kept"][2]
    resumed = model.set_params(engine_options={**options, "resume": True}).fit(toy.X, toy.y)
    (event,) = happened(resumed)
    assert (event["event"], event["actor"], event["from"]) == ("restarted", 1, about["kept"][1])
    assert excess(toy, resumed, np.arange(60), range(7)) < 0.01


def test_options_are_checked_by_name(toy):
    with pytest.raises(ValueError, match="Did you mean 'actors'"):
        fitted(toy, "ray", engine_options={"actor": 2})
    with pytest.raises(ValueError, match="at least 1, got 0"):
        fitted(toy, "ray", engine_options={"actors": 0})
    with pytest.raises(ValueError, match="positive number, got -1"):
        fitted(toy, "ray", engine_options={"timeout": -1})
    with pytest.raises(ValueError, match="needs checkpoint_dir"):
        fitted(toy, "ray", engine_options={"resume": True})
    for name, value in (("timeout", None), ("num_cpus", [1]), ("address", 5), ("resources", "gpu"), ("restart", "yes")):
        with pytest.raises(ValueError, match=f"engine option {name} must be"):
            fitted(toy, "ray", engine_options={name: value})
    with pytest.raises(ValueError, match="made by the simulator"):
        fitted(toy, "ray", faults="loss=0.1")
    with pytest.raises(ValueError, match="Did you mean 'ray'"):
        fitted(toy, "rai")


def test_too_many_actors_for_the_cluster(toy):
    with pytest.raises(TimeoutError, match="the cluster has 4 CPUs, 7 actors"):
        fitted(toy, "ray", engine_options={"actors": 7, "start_timeout": 8})


def test_no_actor_is_left(toy):
    """Each fit ends those it made."""
    from ray._private.state import actors

    fitted(toy, "ray", algorithm="gadget", stopping=None, max_iter=2, engine_options={"actors": 2})
    assert {about["State"] for about in actors().values()} == {"DEAD"}


def train(data, out, *options):
    from typer.testing import CliRunner

    from gadget_svm.cli.app import app

    given = ["train", str(data), "--nodes", "6", "--lam", "0.05", "--stopping", "none", "--quiet", "--out", str(out)]
    found = CliRunner().invoke(app, [*given, *options])
    assert found.exit_code == 0, found.output
    return load_model(out / "model.safetensors")


def test_the_command_line_and_a_driver_that_is_killed(toy, tmp_path):
    """`gadget train --engine ray` with a Ray of its own, killed in the middle: its actors end, and from what is on
    disk it is resumed, to the simulator's model."""
    data, kept, folder = tmp_path / "rows.csv", tmp_path / "kept", tempfile.mkdtemp(prefix="r")
    np.savetxt(data, np.column_stack([toy.X, toy.y]), delimiter=",", header="a,b,c,d,e,label", comments="")
    options = ["--engine", "ray"]
    for text in ("actors=2", f"checkpoint_dir={kept}", "checkpoint_every=10"):
        options += ["--engine-option", text]
    command = [sys.executable, "-m", "gadget_svm", "train", str(data), "--nodes", "6", "--lam", "0.05"]
    command += ["--stopping", "none", "--max-iter", "1000000", "--out", str(tmp_path / "never"), *options]
    command += ["--engine-option", "object_store_memory=100000000", "--engine-option", f"temp_dir={folder}"]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: (kept / "run.json").exists(), 120)
        assert len(actors_of(driver.pid)) == 2
        driver.kill()
        driver.wait(20)
        until(lambda: not actors_of(driver.pid), 60)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Ray's agents take a minute to see that they are alone
        driver.wait(20)
        shutil.rmtree(folder, ignore_errors=True)
    done = json.loads((kept / "run.json").read_text())["t"]
    last = ["--max-iter", str(done + 20)]
    resumed = train(data, tmp_path / "resumed", *last, *options, "--engine-option", "resume=true")
    local = train(data, tmp_path / "local", *last)
    np.testing.assert_array_equal(local.node_coef_, resumed.node_coef_)


def until(true, seconds):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(0.2)


def actors_of(session):
    """The actors' processes of a session that are still there."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:  # it has just ended
            continue
        if name.endswith("(ray::Host") and int(rest.split()[3]) == session and rest.split()[0] != "Z":
            found.append(stat.parent.name)
    return found
