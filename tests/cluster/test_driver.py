"""The driver's side of a run on Ray, over actors in threads: interruptions, losses at bad moments, full disks."""

import json
import os
import threading
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from gadget_svm import Gadget
from gadget_svm.cluster import checkpoints, driver
from gadget_svm.cluster.actor import Given, Host, Saved
from gadget_svm.cluster.actor_pool import MOST_SAID, Crew, said
from gadget_svm.cluster.last_known_state import Seen
from gadget_svm.cluster.timeouts import ClusterError
from support.threaded_actors import SITES, Actor, RayError, Stage, TaskError, Threads


@pytest.fixture
def stage(monkeypatch, toy):
    return Stage(monkeypatch, toy)


def events_of(model):
    return [event for record in model.history_ for event in record.get("events", [])]


def kinds(events):
    return [(event["event"], event["actor"]) for event in events]


def resumed_bits(stage, options, **settings):
    """The run goes on from its checkpoint, to the simulator's bits."""
    model = stage.fit(options={**options, "resume": True}, **settings)
    np.testing.assert_array_equal(model.node_coef_, stage.fit(engine="local", **settings).node_coef_)
    return model


def test_the_stand_in_is_bit_for_bit_the_simulator(stage):
    one, other = stage.fit(max_iter=30), stage.fit(engine="local", max_iter=30)
    np.testing.assert_array_equal(one.node_coef_, other.node_coef_)
    assert one.history_[-1]["messages"] == other.history_[-1]["messages"]


# interruptions


def interrupted_at(stage, t, after=False):
    """KeyboardInterrupt when the driver waits for iterations after t; ``after`` all actors are through with them."""

    def waiting(refs):
        runtime = stage.runtime
        if runtime is not None and runtime.t >= t and stage.ray.asked[-1] in ("advance", "receive"):
            stage.ray.waiting = lambda *_: None
            while after and not all(ref.done() for ref in refs):
                pass
            raise KeyboardInterrupt

    stage.ray.waiting = waiting


@pytest.mark.parametrize("after", [True, False])
def test_an_interruption_saves_what_the_actors_are_at(stage, tmp_path, after):
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 20}
    interrupted_at(stage, 30, after)
    with pytest.raises(KeyboardInterrupt):
        stage.fit(max_iter=100000, options=options)
    about = checkpoints.load_run(tmp_path)
    assert about["t"] == stage.runtime.t > 30
    assert about["kept"] == [about["t"]] * 3
    model = resumed_bits(stage, options, max_iter=about["t"] + 15)
    calm = stage.fit(engine="local", max_iter=about["t"] + 15)
    assert model.history_[-1]["messages"] == calm.history_[-1]["messages"]


def test_an_interruption_while_actors_are_asked_leaves_the_last_checkpoint(stage, tmp_path):
    """Some have heard of the next iterations, and wait for the others: nothing is saved that is of two iterations."""
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 20}

    def interrupt():
        raise KeyboardInterrupt

    def third(actor, method, args):  # noqa: ARG001
        return method == "advance" and stage.runtime.t >= 30 and actor is stage.runtime.crew.actors[2]

    stage.once(third, interrupt)
    with pytest.raises(KeyboardInterrupt):
        stage.fit(max_iter=100000, options=options)
    about = checkpoints.load_run(tmp_path)
    assert about["t"] < stage.runtime.t
    resumed_bits(stage, options, max_iter=about["t"] + 5)


def test_an_error_among_iterations_leaves_the_last_checkpoint(stage, tmp_path, monkeypatch):
    """Two of three are an iteration ahead when one fails."""
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 20}
    advance = Host.advance

    def failing(self, count):
        sent = advance(self, count)
        if self.worker.t > 40 and self.worker.index == 1:
            self.worker.t -= 1
            raise ArithmeticError
        return sent

    with monkeypatch.context() as patched:
        patched.setattr(Host, "advance", failing)
        with pytest.raises(ArithmeticError):
            stage.fit(max_iter=100, options=options)
    assert checkpoints.load_run(tmp_path)["t"] == 40
    resumed_bits(stage, options, max_iter=60)


def test_an_interruption_does_not_wait_for_ever_and_saves_nothing_half_done(stage, tmp_path, monkeypatch):
    """One actor with all nodes, in the middle of iterations that it counts when they are done."""
    options = {"actors": 1, "timeout": 0.2, "checkpoint_dir": str(tmp_path), "checkpoint_every": 20}
    advance, free = Host.advance, threading.Event()

    def slow(self, count):
        if self.worker.t >= 30:
            self.worker.block.w += 1.0
            free.wait(60)
        return advance(self, count)

    with monkeypatch.context() as patched:
        patched.setattr(Host, "advance", slow)
        interrupted_at(stage, 30)
        with pytest.raises(KeyboardInterrupt):
            stage.fit(max_iter=100000, options=options)
    free.set()
    t = checkpoints.load_run(tmp_path)["t"]
    assert 20 <= t <= 30
    resumed_bits(stage, {**options, "timeout": 20}, max_iter=t + 5)


def test_an_answer_of_some_is_none(stage):
    stage.fit(max_iter=10)
    runtime, refs = stage.runtime, [Future(), Future(), Future()]
    for ref in refs:
        ref.set_result((1, 8))
    crew = runtime.crew
    crew.actors = ["a", "b", None]
    for asked, found in (((0,), {}), ((0, 1), {0: (1, 8), 1: (1, 8)}), ((0, 1, 2), {0: (1, 8), 1: (1, 8)}), ((), {})):
        crew._calls = {refs[i]: i for i in asked}
        assert crew.finished(0.1) == found
    crew._calls = {refs[0]: 0, Future(): 1}
    assert crew.finished(0.1) == {}


def test_a_checkpoint_that_is_asked_for_twice_is_written_once_after_the_other(monkeypatch, tmp_path):
    """Whoever was interrupted while it was made asks again at the end; both would write the same file."""
    host, busy = Host(None), threading.Lock()
    host.worker = SimpleNamespace(block=SimpleNamespace(first=0, k=2), state=lambda: ({}, {"t": 7}))

    def save_block(*_):
        if not busy.acquire(blocking=False):
            raise OSError("another is at it")
        time.sleep(0.05)
        busy.release()

    monkeypatch.setattr(checkpoints, "save_block", save_block)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(host.save, [str(tmp_path)] * 2)) == [Saved(7), Saved(7)]


# all are lost


def test_all_others_are_lost_while_one_comes_back(stage):
    """The run begins again with new ones in all places, to the same bits; the one that was to come in is ended."""
    heirs = []

    def heir(actor, method, args):  # noqa: ARG001
        if method == "take_over":
            heirs.append(actor)
        return method == "take_over"

    stage.once(heir, lambda: stage.kill(0, 2))
    model = stage.fit({20: lambda: stage.kill(1)}, options={"restart": True}, max_iter=60)
    events = kinds(events_of(model))
    assert events[0] == ("lost", 1)
    assert sorted(events[1:3]) == [("lost", 0), ("lost", 2)]
    assert events[3:] == [("restarted", 0), ("restarted", 1), ("restarted", 2)]
    assert heirs[0].dead
    np.testing.assert_array_equal(model.node_coef_, stage.fit(engine="local", max_iter=60).node_coef_)


def test_a_new_beginning_that_fails_while_one_comes_back_is_not_its_failure(stage, monkeypatch):
    """Its rows are as they were, those of the others are not."""

    def strike():
        monkeypatch.setattr(Given, "rows", lambda self: other(self))
        stage.kill(0, 2)

    def other(self):
        copy = rows(self)
        copy.data[:] += first_actor(self)
        return copy

    def first_actor(self):
        return self is stage.runtime.crew.sources[0]

    rows = Given.rows
    stage.once(lambda actor, method, args: method == "take_over", strike)  # noqa: ARG005
    with pytest.raises(ValueError, match=r"rows of nodes? 0.* are not those the run began with"):
        stage.fit({20: lambda: stage.kill(1)}, options={"restart": True}, max_iter=60)


@pytest.mark.parametrize("algorithm", ["pdmm", Gadget(gossip="running-sum")], ids=["pdmm", "running-sum"])
def test_one_that_is_lost_on_the_way_of_a_new_beginning_stays_lost(stage, algorithm):
    """Until it comes back, where it can."""
    here = []

    def catch_up(actor, method, args):  # noqa: ARG001
        return method == "advance" and stage.runtime._began_again >= 0

    def strike():
        stage.kill(1)

    stage.once(catch_up, strike)
    at = {
        20: lambda: stage.kill(0, 1, 2),
        60: lambda: here.append((stage.runtime.live_mask(), stage.runtime.crew.lost())),
    }
    events = events_of(stage.fit(at, options={"restart": True}, algorithm=algorithm, max_iter=60))
    assert kinds(events[3:7]) == [("restarted", 0), ("restarted", 1), ("restarted", 2), ("lost", 1)]
    returns = algorithm == "pdmm"
    assert kinds(events[7:]) == [("restarted" if returns else "restart failed", 1)]
    [(flags, lost)] = here
    assert lost == ([] if returns else [1])
    assert flags[2:4].all() == flags.all() == returns


def test_a_new_beginning_that_fails_in_a_checkpoint_is_no_failed_checkpoint(stage, tmp_path, monkeypatch):
    def absent(self):  # noqa: ARG001
        raise FileNotFoundError("no shard")

    def strike():
        stage.kill(0, 1, 2)
        monkeypatch.setattr(Given, "rows", absent)

    stage.once(lambda actor, method, args: method == "save" and stage.runtime.t >= 30, strike)  # noqa: ARG005
    options = {"restart": True, "checkpoint_dir": str(tmp_path), "checkpoint_every": 10}
    with pytest.raises(FileNotFoundError, match="no shard"):
        stage.fit(options=options, max_iter=60)
    assert checkpoints.load_run(tmp_path)["t"] < 30


def test_nothing_begins_again_at_the_end(stage, tmp_path):
    stage.once(lambda actor, method, args: method == "save", lambda: stage.kill(0, 1, 2))  # noqa: ARG005
    options = {"restart": True, "checkpoint_dir": str(tmp_path), "checkpoint_every": 1000}
    with pytest.warns(UserWarning, match="the end of the run is not saved: all actors are lost"):
        model = stage.fit(options=options, max_iter=30)
    assert "take_over" not in stage.ray.asked
    np.testing.assert_array_equal(model.node_coef_, stage.fit(engine="local", max_iter=30).node_coef_)


def test_what_was_given_up_is_given_up_again_after_a_new_beginning(stage):
    at = {10: lambda: stage.kill(1), 20: lambda: stage.kill(0, 2), 40: lambda: stage.kill(1)}
    events = events_of(stage.fit(at, options={"restart": True}, algorithm=Gadget(gossip="running-sum"), max_iter=60))
    assert kinds(events)[:2] == kinds(events)[-2:] == [("lost", 1), ("restart failed", 1)]
    assert len(events) == 9


# checkpoints


def test_a_beginning_that_fails_has_nothing_to_save(stage, toy, tmp_path, monkeypatch):
    """Also where batches before have brought the count above zero."""
    model = stage.model(max_iter=10).fit(toy.X, toy.y, sites=SITES)

    def absent(self):  # noqa: ARG001
        raise FileNotFoundError("no shard")

    monkeypatch.setattr(Given, "rows", absent)
    model.engine_options["checkpoint_dir"] = str(tmp_path)
    with pytest.raises(FileNotFoundError, match="no shard"):
        model.partial_fit(toy.X, toy.y, sites=SITES)


def test_what_takes_no_nodes_back_keeps_the_checkpoint_of_all(stage, tmp_path):
    """An actor is lost, later all: what the error promises to resume from can be resumed from."""
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 10}
    at = {20: lambda: stage.kill(1), 60: lambda: stage.kill(0, 2)}
    with (
        pytest.warns(UserWarning, match="actor 1 is lost.*cannot take nodes back.*resumed from iteration 20"),
        pytest.raises(ClusterError, match="resume=True goes on from iteration 20"),
    ):
        stage.fit(at, options=options, algorithm="mom-dsvm", max_iter=100)
    assert checkpoints.load_run(tmp_path)["kept"] == [20, 20, 20]
    resumed_bits(stage, options, algorithm="mom-dsvm", max_iter=80)


def test_one_that_is_lost_while_a_checkpoint_is_made(stage, tmp_path):
    """What takes no nodes back does not count what the others wrote; what does, does."""
    for algorithm, kept in (("mom-dsvm", [20, 20, 20]), ("pdmm", [30, 20, 30])):
        folder = tmp_path / algorithm
        stage.once(lambda actor, method, args: method == "save" and stage.runtime.t == 30, lambda: stage.kill(1))  # noqa: ARG005
        options = {"checkpoint_dir": str(folder), "checkpoint_every": 10}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stage.fit(options=options, algorithm=algorithm, max_iter=30, record_every=10)
        assert checkpoints.load_run(folder)["kept"] == kept


@pytest.mark.parametrize("resume", [True, False])
def test_what_a_killed_process_had_begun_to_write_is_swept_away(stage, tmp_path, resume):
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 10}
    stage.fit(options=options, max_iter=20)
    for name in ("block-0-2.30.safetensors.part", "run.json.part"):
        (tmp_path / name).write_text("half")
    stage.fit(options={**options, "resume": resume}, max_iter=20)
    assert not list(tmp_path.rglob("*.part"))


def test_a_full_disk_is_given_its_room_back(tmp_path, monkeypatch):
    target = tmp_path / "run.json"
    checkpoints.write(target, b"whole")

    def full(_):
        assert (tmp_path / "run.json.part").exists()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.write(target, b"more")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert target.read_bytes() == b"whole"


# what is known of the lost


def test_lost_nodes_go_on_from_the_model_they_answer_with(stage, toy):
    for algorithm in ("pdmm", "gadget"):
        model = stage.fit({50: lambda: stage.kill(1)}, algorithm=algorithm, max_iter=60)
        memory = model._state
        answered = np.column_stack([model.node_coef_, model.node_intercept_])
        assert np.abs(answered[2:4]).min(axis=1).all()
        np.testing.assert_array_equal(memory.w[2:4, 0], answered[2:4])
        np.testing.assert_allclose(memory.w_sum[2:4, 0] / memory.iterates[2:4, None], answered[2:4], rtol=1e-12)
        assert set(memory.iterates) == {memory.iterates[0]}
        np.testing.assert_array_equal(model.node_last_coef_[2:4], model.node_coef_[2:4])
        before = model.node_coef_.copy()
        model.set_params(engine="local", engine_options=None).partial_fit(toy.X, toy.y)
        step = np.linalg.norm(model.node_coef_ - before, axis=1)
        assert step[2:4].max() < 0.5 * np.linalg.norm(before[2:4], axis=1).min()


def test_lost_nodes_whose_models_nobody_fetched_have_the_average(stage):
    stage.once(lambda actor, method, args: method == "values", lambda: stage.kill(1))  # noqa: ARG005
    with pytest.warns(UserWarning, match=r"2 of 7 nodes were lost before their models were ever fetched"):
        model = stage.fit(record_every=0, max_iter=30)
    np.testing.assert_array_equal(model.node_coef_[2:4], np.repeat(model.coef_, 2, axis=0))
    weights = np.bincount(SITES).astype(float)
    weights[2:4] = 0
    np.testing.assert_allclose(model.coef_[0], np.average(model.node_coef_, axis=0, weights=weights), rtol=1e-12)


def test_one_that_is_lost_as_a_record_is_made_has_no_voice_in_it(stage):
    """Nothing was ever seen of it: it would count as zeros, of objective 1."""
    stage.once(lambda actor, method, args: method == "values", lambda: stage.kill(1))  # noqa: ARG005
    record = stage.fit(max_iter=30).history_[0]
    assert record["iteration"] == 10
    assert record["worst_objective"] < 0.9


def test_who_is_lost_after_the_last_record_is_in_the_history(stage):
    stage.once(lambda actor, method, args: (method, *args) == ("values", "w"), lambda: stage.kill(1))  # noqa: ARG005
    model = stage.fit(max_iter=30)
    assert kinds(model.history_[-1]["events"]) == [("lost", 1)]
    np.testing.assert_array_equal(model.node_coef_, stage.fit(engine="local", max_iter=30).node_coef_)


def test_judged_on_the_rows_that_were_there(stage, monkeypatch):
    """A loss between two batches of models: the objective of zeros is 1 on any rows."""
    monkeypatch.setattr(driver, "BATCH", 1)
    found, times = [], []

    def second(actor, method, args):  # noqa: ARG001
        times.append(method)
        return times.count("losses") == 4

    def judge():
        stage.once(second, lambda: stage.kill(1))
        found.append(stage.runtime.judge(np.zeros((3, *stage.runtime.shape)), 0.1).objective)

    stage.fit({10: judge}, max_iter=10)
    assert found[0].tolist() == [1, 1, 1]
    assert not stage.runtime.live_mask()[2:4].any()


def test_seen():
    seen = Seen(np.array([0, 2, 3], dtype=np.int64))
    assert not seen.known("w").any()
    assert seen.put_together("w", {1: np.array([5.0])}).tolist() == [0, 0, 5]
    assert seen.known("w").tolist() == [False, False, True]
    assert seen.put_together("w", {0: np.array([1.0, 2.0]), 1: np.array([6.0])}).tolist() == [1, 2, 6]
    assert seen.put_together("w", {0: np.array([3.0, 4.0])}).tolist() == [3, 4, 6]
    assert seen.known("w").all()
    assert not seen.known("other").any()


# small things


class Ordered(list):
    """Handles; whoever is struck from them must be known as lost by then."""

    worker = None

    def __setitem__(self, index, handle):
        assert index in self.worker.lost
        super().__setitem__(index, handle)


def test_mail_to_one_that_is_forgotten_at_that_moment():
    host = Host(None)
    host.worker = SimpleNamespace(index=0, lost=set())
    host.worker.forget = host.worker.lost.add
    host.others = Ordered([None, "handle", None])
    host.others.worker = host.worker
    host.forget(1)
    host._post(1, (0, 1, 0), None)  # the list of the lost was made before
    assert host.others[1] is None


def starting(error):
    ray = Threads()
    crew = SimpleNamespace(ray=ray, options=SimpleNamespace(timeout=1, start_timeout=1))

    def failing(refs, timeout):  # noqa: ARG001
        raise error

    ray.get = failing
    return Crew.starting(crew, [])


def test_what_ray_says_of_actors_that_do_not_start():
    text = "The actor died\n  of \x1b[36mthis\x1b[39m:\n\nModuleNotFoundError: No module named 'gadget_svm'\n"
    with pytest.raises(ClusterError, match=r"No module named 'gadget_svm'\): install .* 'gadget-svm\[ray\]'") as told:
        starting(RayError(text))
    assert "memory" not in str(told.value)
    assert "\x1b" not in str(told.value)
    with pytest.raises(ClusterError, match=r"\(RayError: killed\): has its machine memory enough"):
        starting(RayError("gone\nkilled"))
    with pytest.raises(ZeroDivisionError):
        starting(TaskError(ZeroDivisionError()))
    assert len(said(RayError("x" * 1000))) == MOST_SAID
    assert said(RayError()) == "RayError"


def test_a_checkpoint_is_written_whole(stage, tmp_path):
    """run.json names what is there."""
    stage.fit(options={"checkpoint_dir": str(tmp_path), "checkpoint_every": 10}, max_iter=25)
    about = json.loads((tmp_path / "run.json").read_text())
    assert about["t"] == 25
    assert about["kept"] == [25, 25, 25]
    assert len(list(tmp_path.glob("block-*.25.safetensors"))) == 3


def test_one_who_was_away_at_the_checkpoint_is_not_taken_for_away_ever_after(stage, tmp_path):
    """0 and 2 come back after 20; 1, whose checkpoint is of a moment without them, comes back after 40."""
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 20, "restart": True}
    calm = stage.fit(engine="local", max_iter=1500, topology="ring").history_[-1]
    at = {30: lambda: stage.kill(0, 2), 50: lambda: stage.kill(1)}
    found = stage.fit(at, max_iter=1500, topology="ring", options=options).history_
    told = [(event["event"], event["actor"]) for record in found for event in record.get("events", [])]
    assert told.count(("restarted", 1)) == 1
    assert found[-1]["disagreement"] < 1e-3
    assert found[-1]["objective"] == pytest.approx(calm["objective"], rel=1e-3)


def test_an_interruption_as_one_comes_back_leaves_a_checkpoint_that_converges(stage, tmp_path):
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 20, "restart": True}
    calm = stage.fit(engine="local", max_iter=1500, topology="ring").history_[-1]

    def interrupt(_):
        if stage.ray.asked[-1] == "welcome":
            stage.ray.waiting = lambda *_: None
            raise KeyboardInterrupt

    def arm():
        stage.kill(1)
        stage.ray.waiting = interrupt

    with pytest.raises(KeyboardInterrupt):
        stage.fit({20: arm}, max_iter=100, topology="ring", options=options)
    found = stage.fit(max_iter=1500, topology="ring", options={**options, "resume": True}).history_[-1]
    assert found["disagreement"] < 1e-3
    assert found["objective"] == pytest.approx(calm["objective"], rel=1e-3)


@pytest.mark.parametrize(
    ("placed", "said"),
    [(True, "all of them run, and still read their rows"), (False, "1 of 3 have no place, as the cluster has 2 CPUs")],
)
def test_a_late_start_tells_slow_actors_from_actors_without_a_place(stage, monkeypatch, placed, said):
    if not placed:
        monkeypatch.setattr(Actor, "call", lambda actor, *_: Future() if actor is crew.actors[1] else answered())
    settings = SimpleNamespace(timeout=0.2, start_timeout=0.1, num_cpus=1, resources=None, memory=None)
    cluster = SimpleNamespace(
        ray=stage.ray, options=settings, cpus=lambda: 2.0, make=lambda source, *_: Actor(stage.ray, source)
    )
    crew = Crew(cluster, ["rows"] * 3, print)
    with pytest.raises(TimeoutError, match=rf"^2 of 3 actors were not ready within start_timeout=0.1 s: {said}"):
        crew.starting([answered(), Future(), Future()])


def answered():
    found = Future()
    found.set_result(0)
    return found
