"""The Ray engine on a real Ray: the simulator's bits, real processes that die, and a driver that is killed.

What is done about losses is tested over threads, in test_driver.py.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gadget_svm import GadgetSVC, load_model
from gadget_svm.cluster import checkpoints, connection
from support.ray_kit import LAM, SITES, events_of, excess, kill, network, noted, observed, own_ray, until
from support.watch import watched

SETTINGS = {"n_nodes": 7, "lam": LAM, "random_state": 5, "n_jobs": 1}
SURVIVORS = [0, 1, 4, 5, 6]  # actor 1 of three holds the nodes 2 and 3


@pytest.fixture(scope="module", autouse=True)
def ray():
    """Ray once for all tests here; its context."""
    with own_ray() as context:
        yield context


@pytest.fixture
def runtimes(monkeypatch):
    return noted(monkeypatch)


def fitted(toy, engine, *, y=None, weight=None, **settings):
    model = GadgetSVC(engine=engine, **{**SETTINGS, **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(toy.X, toy.y if y is None else y, sample_weight=weight)


def without_clocks(model):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in model.history_]


def assert_same(one, other):
    for name in ("coef_", "intercept_", "node_coef_", "node_intercept_", "node_last_coef_", "node_last_intercept_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name, strict=True)
    assert without_clocks(one) == without_clocks(other)
    for name in ("n_iter_", "converged_", "stopped_by_", "movement_", "gap_bound_", "gossip_"):
        assert getattr(one, name) == getattr(other, name), name


# the simulator's bits

CERTIFIED = {"algorithm": "auto", "stopping": "gap", "tol": 0.01}
PAIRS = {"stopping": None, "max_iter": 30, "class_weight": "balanced", "multi_class": "ovo"}


@pytest.mark.parametrize(("settings", "actors"), [(CERTIFIED, 3), (PAIRS, 2)], ids=["certified", "pairs"])
def test_bit_for_bit_the_simulator(toy, settings, actors):
    """Models, history, messages, bytes and certificates; with several classes and weighted rows."""
    y, weight = (toy.three, np.linspace(0.1, 2, 60)) if settings is PAIRS else (None, None)
    local = fitted(toy, "local", y=y, weight=weight, **settings)
    assert_same(local, fitted(toy, "ray", y=y, weight=weight, engine_options={"actors": actors}, **settings))


def test_batches_continue(toy):
    local, on_ray = (
        GadgetSVC(engine=engine, **SETTINGS).partial_fit(toy.X[:30], toy.y[:30], classes=[0, 1])
        for engine in ("local", "ray")
    )
    for model in (local, on_ray):
        model.partial_fit(toy.X[30:], toy.y[30:])
    assert_same(local, on_ray)


def test_a_dataset_whose_tasks_need_the_cpus_of_the_actors(toy):
    """Its blocks are computed before the actors take every CPU."""
    pd = pytest.importorskip("pandas")
    import ray.data

    frame = pd.DataFrame(toy.X, columns=list("abcde")).assign(label=toy.y)
    settings = {"lam": LAM, "random_state": 1, "stopping": None, "max_iter": 5}
    model = GadgetSVC(n_nodes=20, engine="ray", engine_options={"actors": 4, "start_timeout": 120}, **settings)
    dataset = ray.data.from_pandas([frame] * 20)
    model.fit(dataset, "label")
    local = GadgetSVC(**settings).fit_shards([(toy.X, toy.y)] * 20)
    np.testing.assert_array_equal(local.node_coef_, model.node_coef_)
    with pytest.raises(ValueError, match="engine='ray'"):
        GadgetSVC().fit_shards(dataset)


# actors


def test_actors_have_names_and_logs_and_end(toy, ray):
    from ray.util import list_named_actors

    names = []
    model = GadgetSVC(engine="ray", engine_options={"actors": 2}, **{**SETTINGS, "max_iter": 5, "stopping": None})
    watched(model, lambda *_: names.extend(list_named_actors())).fit(toy.X, toy.y)
    assert len(set(names)) == 2
    logs = Path(ray.address_info["session_dir"], "logs")
    text = "".join(path.read_text() for path in logs.glob("worker-*.err"))
    for name in names:
        assert f"{name} INFO nodes " in text
    until(lambda: not list_named_actors(), 20)


def test_too_many_actors_for_the_cluster(toy):
    with pytest.raises(TimeoutError, match="of 7 have no place, as the cluster has 4 CPUs, and 7 actors"):
        fitted(toy, "ray", engine_options={"actors": 7, "start_timeout": 5})


def test_an_address_where_ray_answers(toy, ray):
    address = ray.address_info["gcs_address"]
    connection.require_reachable(address, 30)
    model = fitted(toy, "ray", engine_options={"address": address}, max_iter=5)
    np.testing.assert_array_equal(model.coef_, fitted(toy, "local", max_iter=5).coef_)


# losses


def struck(toy, runtimes, number=signal.SIGKILL, *, actors=(1,), at=20, **settings):
    """A model some of whose actors get a signal in the middle."""

    def observe(record):
        if record["iteration"] == at:
            for actor in actors:
                kill(runtimes[-1], actor, number)

    return observed(toy, network(**settings), observe)


def test_a_killed_actor_is_left_out(toy, runtimes):
    """The others reach the optimum of their rows."""
    model = struck(toy, runtimes, max_iter=500)
    (event,) = events_of(model.history_)
    assert (event["event"], event["actor"], event["nodes"]) == ("lost", 1, [2, 3])
    assert "Died" in event["why"]
    assert excess(toy, model, np.flatnonzero(np.isin(SITES, SURVIVORS)), SURVIVORS) < 0.01


@pytest.mark.parametrize(
    ("number", "lost", "timeout"),
    [(signal.SIGKILL, (1,), 60), (signal.SIGKILL, (0, 1, 2), 60), (signal.SIGSTOP, (1,), 6)],
    ids=["one", "all", "hung"],
)
def test_ray_restarts_actors_and_the_group_is_restored(toy, runtimes, tmp_path, number, lost, timeout):
    """From its checkpoint, to the simulator's bits."""
    options = {"restart": True, "timeout": timeout, "checkpoint_dir": str(tmp_path), "checkpoint_every": 5}
    model = struck(toy, runtimes, number, actors=lost, options=options, max_iter=60)
    events = [(event["event"], event["actor"]) for event in events_of(model.history_)]
    assert sorted(events) == sorted((kind, actor) for kind in ("lost", "restarted") for actor in lost)
    local = network(engine="local", options={}, max_iter=60).fit(toy.X, toy.y, sites=SITES)
    np.testing.assert_array_equal(model.node_coef_, local.node_coef_)
    assert runtimes[-1].live_mask().all()


def test_an_interruption_is_resumed(toy, tmp_path, runtimes):
    """Ctrl-C in the middle of iterations: what the actors were at is saved, and continued to the same bits."""
    settings = {**SETTINGS, "algorithm": "pdmm", "stopping": None, "record_every": 0}
    options = {"actors": 2, "checkpoint_dir": str(tmp_path), "checkpoint_every": 20}

    def interrupt():
        try:
            until(lambda: runtimes and runtimes[-1].checkpoints.last >= 40, 240)  # on a busy machine actors start late
            until(lambda: not runtimes[-1]._consistent, 60)
        finally:
            os.kill(os.getpid(), signal.SIGINT)  # else the fit would not end

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        GadgetSVC(engine="ray", engine_options=options, **settings, max_iter=10**7).fit(toy.X, toy.y)
    thread.join()
    t = checkpoints.read_run(tmp_path)["t"]
    assert t >= runtimes[-1].checkpoints.last >= 40
    more = {**settings, "max_iter": t + 10}
    resumed = GadgetSVC(engine="ray", engine_options={**options, "resume": True}, **more).fit(toy.X, toy.y)
    np.testing.assert_array_equal(resumed.node_coef_, fitted(toy, "local", **more).node_coef_)


# the command line


def rows_file(toy, folder):
    data = folder / "rows.csv"
    np.savetxt(data, np.column_stack([toy.X, toy.y]), delimiter=",", header="a,b,c,d,e,label", comments="")
    return data


def trained(data, out, *options):
    """What the command prints, and the model it saves."""
    from typer.testing import CliRunner

    from gadget_svm.cli.app import app

    given = ["train", str(data), "--nodes", "6", "--lam", "0.05", "--stopping", "none", "--quiet", "--out", str(out)]
    found = CliRunner().invoke(app, [*given, *options])
    assert found.exit_code == 0, found.output
    return found.output, load_model(out / "model.safetensors")


def test_the_command_line_tells_losses_and_returns(toy, tmp_path, monkeypatch):
    data = rows_file(toy, tmp_path)
    noted(monkeypatch, lambda runtime: kill(runtime, 1))
    options = ["--engine", "ray", "--max-iter", "60", "--engine-option", "actors=3", "--engine-option", "restart=true"]
    output, _ = trained(data, tmp_path, *options)
    (line,) = [line for line in output.splitlines() if line.startswith("On the way:")]
    assert "actor 1 with nodes 2 to 3 was lost at iteration 0 (" in line
    assert "), back at iteration" in line


def test_the_command_line_and_a_driver_that_is_killed(toy, tmp_path):
    """`gadget train --engine ray` with a Ray of its own, killed in the middle: its actors end, and from what is on
    disk it is resumed, to the simulator's model."""
    data, kept, folder = rows_file(toy, tmp_path), tmp_path / "kept", tempfile.mkdtemp(prefix="r")
    options = ["--engine", "ray"]
    for text in ("actors=2", f"checkpoint_dir={kept}", "checkpoint_every=10"):
        options += ["--engine-option", text]
    command = [sys.executable, "-m", "gadget_svm", "train", str(data), "--nodes", "6", "--lam", "0.05"]
    command += ["--stopping", "none", "--max-iter", "1000000", "--out", str(tmp_path / "never"), *options]
    command += ["--engine-option", "object_store_memory=100000000", "--engine-option", f"temp_dir={folder}"]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: checkpoints.exists(kept), 120)
        assert len(actors_of(driver.pid)) == 2
        driver.kill()
        driver.wait(20)
        until(lambda: not actors_of(driver.pid), 60)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Ray's agents take a minute to see that they are alone
        driver.wait(20)
        shutil.rmtree(folder, ignore_errors=True)
    done = checkpoints.read_run(kept)["t"]
    last = ["--max-iter", str(done + 20)]
    _, resumed = trained(data, tmp_path / "resumed", *last, *options, "--engine-option", "resume=true")
    _, local = trained(data, tmp_path / "local", *last)
    np.testing.assert_array_equal(local.node_coef_, resumed.node_coef_)


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
