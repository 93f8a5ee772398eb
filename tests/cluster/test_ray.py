"""The Ray engine on a real Ray of its own: bit for bit the simulator, and a driver that dies. Actors that die are
test_ray_losses.py's, places to read from test_ray_places.py's."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import ConvergenceWarning

from gadget_svm import Gadget, GadgetSVC, load_model
from gadget_svm.algorithms import Pdmm
from gadget_svm.cluster import checkpoints
from gadget_svm.cluster.connection import Cluster
from gadget_svm.report.formatting import describe_losses
from support.ray_kit import files_of, kill, noted, own_ray, ray, until
from support.watch import watched

LAM = 0.05
SETTINGS = {"n_nodes": 7, "lam": LAM, "random_state": 5, "n_jobs": 1}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Ray once for all tests here."""
    with own_ray():
        yield


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
CERTIFIED = {"algorithm": "auto", "stopping": "gap", "tol": 0.01}
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


@pytest.mark.parametrize("kind", ["ovr", "ovo"])
def test_several_classes_and_weighted_rows(toy, kind):
    settings = {"algorithm": "auto", "stopping": None, "max_iter": 30, "class_weight": "balanced", "multi_class": kind}
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


def test_files_with_class_weights_pairs_and_c(toy, tmp_path):
    """Weights, lam and pairs of classes are worked out from what the actors tell of their rows."""
    paths = [str(tmp_path / f"{i}.svm") for i in range(4)]
    for i, path in enumerate(paths):
        dump_svmlight_file(toy.X[i::4], toy.three[i::4], path, zero_based=False)
    settings = {"C": 0.3, "class_weight": {0: 0.7, 1: 1.9, 2: 0.1}, "multi_class": "ovo", "random_state": 1}
    settings |= {"stopping": None, "max_iter": 30, "record_every": 0}
    local = GadgetSVC(**settings).fit_shards(paths)
    on_ray = GadgetSVC(engine="ray", engine_options={"actors": 2}, **settings).fit_shards(paths)
    assert local.lam_ == on_ray.lam_
    np.testing.assert_array_equal(local.node_coef_, on_ray.node_coef_)
    assert local.history_[-1]["objective"] == pytest.approx(on_ray.history_[-1]["objective"], rel=1e-12)


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


def test_a_dataset_whose_tasks_are_still_to_run_when_actors_take_all_cpus(toy):
    """The actors held every CPU and waited for blocks whose tasks waited for a CPU."""
    pytest.importorskip("pandas")
    import pandas as pd
    import ray.data

    frame = pd.DataFrame(toy.X, columns=list("abcde")).assign(label=toy.y)
    settings = {"lam": LAM, "random_state": 1, "stopping": None, "max_iter": 5}
    model = GadgetSVC(n_nodes=20, engine="ray", engine_options={"actors": 4, "start_timeout": 120}, **settings)
    model.fit(ray.data.from_pandas([frame] * 20), "label")
    local = GadgetSVC(**settings).fit_shards([(toy.X, toy.y)] * 20)
    np.testing.assert_array_equal(local.node_coef_, model.node_coef_)


def test_actors_have_names_and_logs(toy):
    from ray.util import list_named_actors

    names = []
    model = GadgetSVC(engine="ray", engine_options={"actors": 2}, **{**SETTINGS, "max_iter": 5, "stopping": None})
    watched(model, lambda *_: names.extend(list_named_actors())).fit(toy.X, toy.y)
    assert len(set(names)) == 2
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    text = "".join(path.read_text() for path in logs.glob("worker-*.err"))
    for name in names:
        assert f"{name} INFO nodes " in text


class DeadError(Exception):
    """The driver's end."""


@pytest.mark.parametrize("algorithm", ["auto", "gadget"])
def test_a_run_whose_driver_died_is_resumed(toy, tmp_path, algorithm):
    """Bit for bit as if it had not been interrupted."""
    settings = {**SETTINGS, "algorithm": algorithm, "stopping": None, "max_iter": 40, "record_every": 10}
    options = {"actors": 2, "checkpoint_dir": str(tmp_path), "checkpoint_every": 10}

    def die(record, view):  # noqa: ARG001
        if record["iteration"] == 30:
            raise DeadError

    with pytest.raises(DeadError):
        watched(GadgetSVC(engine="ray", engine_options=options, **settings), die).fit(toy.X, toy.y)
    assert sorted(tmp_path.glob("block-*"))
    resumed = GadgetSVC(engine="ray", engine_options={**options, "resume": True}, **settings).fit(toy.X, toy.y)
    whole = fitted(toy, "local", **settings)
    np.testing.assert_array_equal(whole.node_coef_, resumed.node_coef_)
    assert told(whole)[-1] == told(resumed)[-1]
    assert resumed.n_iter_ == 40
    again = GadgetSVC(engine="ray", engine_options={**options, "resume": True}, **{**settings, "max_iter": 30})
    again.fit(toy.X, toy.y)  # already farther: nothing is left to do
    assert again.n_iter_ == 40
    np.testing.assert_array_equal(again.node_coef_, resumed.node_coef_)
    assert len(again.history_) == 1
    other = GadgetSVC(engine="ray", engine_options={**options, "resume": True}, **{**settings, "random_state": 9})
    with pytest.raises(ValueError, match="of another run"):
        other.fit(toy.X, toy.y)


def test_an_interruption_is_resumed(toy, tmp_path, monkeypatch):
    """Ctrl-C in the middle of iterations: what the actors were at is saved, and is gone on from to the same bits."""
    runtimes = noted(monkeypatch)
    settings = {**SETTINGS, "algorithm": "pdmm", "stopping": None, "record_every": 0}
    options = {"actors": 2, "checkpoint_dir": str(tmp_path), "checkpoint_every": 20}

    def interrupt():
        try:
            until(lambda: runtimes and runtimes[-1].saves.last >= 40, 240)  # on a busy machine actors start slowly
            until(lambda: not runtimes[-1]._whole, 60)
        finally:
            os.kill(os.getpid(), signal.SIGINT)  # also if it waited for nothing: the fit would not end

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        GadgetSVC(engine="ray", engine_options=options, **settings, max_iter=10**7).fit(toy.X, toy.y)
    thread.join()
    t = json.loads((tmp_path / "run.json").read_text())["t"]
    assert t >= runtimes[-1].saves.last >= 40
    more = {**settings, "max_iter": t + 10}
    resumed = GadgetSVC(engine="ray", engine_options={**options, "resume": True}, **more).fit(toy.X, toy.y)
    np.testing.assert_array_equal(resumed.node_coef_, fitted(toy, "local", **more).node_coef_)


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


def test_what_cannot_be_saved_or_resumed_is_said_before_anything_starts(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(Cluster, "make", lambda *_: pytest.fail("an actor was made"))
    (tmp_path / "file").write_text("")
    folder = tmp_path / "absent"
    for options, kind, said in (
        ({"checkpoint_dir": tmp_path / "file"}, ValueError, r"checkpoints cannot be written to .*file"),
        ({"checkpoint_dir": folder, "resume": True}, FileNotFoundError, "nothing to resume: .*absent"),
    ):
        with pytest.raises(kind, match=said):
            fitted(toy, "ray", engine_options={"actors": 1, **options})
    assert not folder.exists()


def test_a_checkpoint_that_fails_ends_no_run(toy, tmp_path):
    """The folder is gone for a while: the history and a warning say so, and what comes after is saved again."""
    folder, away = tmp_path / "kept", tmp_path / "away"
    options = {"actors": 2, "checkpoint_dir": str(folder), "checkpoint_every": 10}

    def observe(record, view):  # noqa: ARG001
        if record["iteration"] == 10:
            folder.rename(away)
            folder.write_text("")
        if record["iteration"] == 30:
            folder.unlink()
            away.rename(folder)

    settings = {**SETTINGS, "algorithm": "pdmm", "stopping": None, "max_iter": 50, "record_every": 10}
    model = GadgetSVC(engine="ray", engine_options=options, **settings)
    with pytest.warns(UserWarning, match=r"checkpoint of iteration 20 could not .* resumed from iteration 10"):
        watched(model, observe).fit(toy.X, toy.y)
    events = [event for record in model.history_ for event in record.get("events", [])]
    assert [(event["event"], event["iteration"]) for event in events] == [
        ("checkpoint failed", 20), ("checkpoint failed", 30),
    ]  # fmt: skip
    assert json.loads((folder / "run.json").read_text())["t"] == 50
    assert describe_losses(model.history_).startswith("On the way: a checkpoint could not be written at iteration 20 (")
    np.testing.assert_array_equal(fitted(toy, "local", **settings).node_coef_, model.node_coef_)


def test_the_checkpoint_to_be_resumed_from_outlives_later_ones_that_failed(tmp_path):
    for t in range(1, 8):
        checkpoints.save_block(tmp_path, 0, 2, {"w": np.full(2, t)}, {"t": t}, "this run")
        if t <= 3:
            checkpoints.save_run(tmp_path, {"kept": [t]})
    assert sorted(path.name for path in tmp_path.glob("block-*")) == [f"block-0-2.{t}.safetensors" for t in (3, 6, 7)]
    assert checkpoints.load_block(tmp_path, 0, 2, 3, "this run")[0]["w"].tolist() == [3, 3]
    with pytest.raises(ValueError, match=r"block-0-2\.3\.safetensors is of another run"):
        checkpoints.load_block(tmp_path, 0, 2, 3, "that run")


def test_two_runs_do_not_write_into_one_folder(toy, tmp_path):
    options = {"actors": 1, "checkpoint_dir": str(tmp_path)}
    held = checkpoints.hold(tmp_path)
    with pytest.raises(ValueError, match=rf"process {os.getpid()} has a run under way .* one for each run"):
        fitted(toy, "ray", engine_options=options, max_iter=5)
    os.close(held)
    for _ in range(2):  # one after the other is no harm
        fitted(toy, "ray", engine_options=options, max_iter=5)


def test_another_ray_than_the_one_here_is_refused(toy):
    here = ray.get_runtime_context().gcs_address
    for other in ("127.0.0.1:1", "10.255.255.1:6379", "local"):
        with pytest.raises(ValueError, match=rf"address is '{other}', but .* at {here}, .* leave address out"):
            fitted(toy, "ray", engine_options={"address": other}, max_iter=5)
    for same in (here, f"localhost:{here.rpartition(':')[2]}", f"127.0.0.1:{here.rpartition(':')[2]}"):
        model = fitted(toy, "ray", engine_options={"address": same}, max_iter=5)
        np.testing.assert_array_equal(model.coef_, fitted(toy, "local", max_iter=5).coef_)
    with pytest.warns(UserWarning, match=r"a Ray that is started here: temp_dir, object_store_memory; this process is"):
        fitted(toy, "ray", engine_options={"temp_dir": "/x", "object_store_memory": 10**8}, max_iter=5)


def test_options_are_checked_by_name(toy):
    with pytest.raises(ValueError, match=r"engine_options must be a dictionary such as \{'actors': 4\}, got \[2\]"):
        fitted(toy, "ray", engine_options=[2])
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
    with pytest.raises(TimeoutError, match="of 7 have no place, as the cluster has 4 CPUs, and 7 actors"):
        fitted(toy, "ray", engine_options={"actors": 7, "start_timeout": 8})


def test_no_actor_is_left(toy):
    """Each fit ends those it made."""
    from ray._private.state import actors

    fitted(toy, "ray", algorithm="gadget", stopping=None, max_iter=2, engine_options={"actors": 2})
    assert {about["State"] for about in actors().values()} == {"DEAD"}


def rows_file(toy, folder):
    data = folder / "rows.csv"
    np.savetxt(data, np.column_stack([toy.X, toy.y]), delimiter=",", header="a,b,c,d,e,label", comments="")
    return data


def trained(data, out, *options):
    """What the command prints."""
    from typer.testing import CliRunner

    from gadget_svm.cli.app import app

    given = ["train", str(data), "--nodes", "6", "--lam", "0.05", "--stopping", "none", "--quiet", "--out", str(out)]
    found = CliRunner().invoke(app, [*given, *options])
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_line_says_who_was_lost_and_came_back(toy, tmp_path, monkeypatch):
    data = rows_file(toy, tmp_path)
    noted(monkeypatch, lambda runtime: kill(runtime, 1))
    options = ["--engine", "ray", "--max-iter", "60", "--engine-option", "actors=3", "--engine-option", "restart=true"]
    output = trained(data, tmp_path, *options)
    (line,) = [line for line in output.splitlines() if line.startswith("On the way:")]
    assert "actor 1 with nodes 2 to 3 was lost at iteration 0 (ActorDiedError), back at iteration" in line


def test_absences_in_one_line():
    def event(kind, actor, iteration, **more):
        return {"event": kind, "actor": actor, "nodes": [2 * actor, 2 * actor + 1], "iteration": iteration, **more}

    def told(*events):
        return describe_losses([{"events": [one]} for one in events] + [{}])

    lost = event("lost", 1, 1000, why="no answer")
    said = "On the way: actor 1 with nodes 2 to 3 was lost at iteration 1,000 (no answer)"
    assert told() == ""
    assert told(lost) == f"{said}, not back."
    assert told(lost, event("restart failed", 1, 1005, why="no file")) == f"{said}, not back."
    assert told(event("restarted", 0, 4), lost, event("restarted", 1, 1010), {**lost, "iteration": 2000}) == (
        "On the way: actor 0 with nodes 0 to 1 came back at iteration 4; "
        "actor 1 with nodes 2 to 3 was lost at iteration 1,000 (no answer), back at iteration 1,010; "
        "actor 1 with nodes 2 to 3 was lost at iteration 2,000 (no answer), not back."
    )
    assert told(*({**lost, "actor": i} for i in range(30))).endswith("; and 10 more.")
    assert told({**event("checkpoint failed", 0, 60, why="no space left"), "actor": None}) == (
        "On the way: a checkpoint could not be written at iteration 60 (no space left)."
    )


def train(data, out, *options):
    trained(data, out, *options)
    return load_model(out / "model.safetensors")


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
