"""The driver of a run on Ray, over actors in threads: losses and restores, interruptions, checkpoints."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gadget_svm import Gadget
from gadget_svm.cluster import actor as actor_module
from gadget_svm.cluster import checkpoints, driver
from gadget_svm.cluster.actor import Given, Host
from gadget_svm.cluster.actor_pool import MAX_REASON_LENGTH, ActorPool, describe
from gadget_svm.cluster.checkpoints import SaveFailedError
from gadget_svm.cluster.connection import ClusterError
from support.ray_kit import events_of, excess
from support.threaded_actors import SITES, Actor, RayError, Stage, TaskError, Threads

RUNNING_SUM = Gadget(gossip="running-sum")
SURVIVORS = [0, 1, 4, 5, 6]  # actor 1 of three holds the nodes 2 and 3


@pytest.fixture
def stage(monkeypatch, toy):
    return Stage(monkeypatch, toy)


def kinds(model):
    return [(event["event"], event["actor"]) for event in events_of(model.history_)]


def assert_simulators_bits(stage, model, **settings):
    np.testing.assert_array_equal(model.node_coef_, stage.fit(engine="local", **settings).node_coef_)


def assert_resumes(stage, options, **settings):
    """The run continues from its checkpoint, to the simulator's bits."""
    model = stage.fit(options={**options, "resume": True}, **settings)
    assert_simulators_bits(stage, model, **settings)
    return model


def last_checkpoint(folder):
    return checkpoints.read_run(folder)["t"]


# lost actors are left out


@pytest.mark.parametrize("way", ["dies", "hangs", "is not heard"])
def test_the_others_reach_their_optimum(stage, toy, way):
    """Without the rows of an actor that dies, does not answer, or whose messages do not arrive; the history says so."""
    free = threading.Event()

    class Faulty(Host):
        def status(self):
            if way == "hangs" and self.worker.index == 1 and self.worker.runtime.t > 20:
                free.wait(60)
            return super().status()

        def receive(self, group, source, number, messages):
            if way == "dies" or self.worker.index != 1 or number <= 20 or (way == "is not heard" and source == 0):
                super().receive(group, source, number, messages)

    stage.ray.host = Faulty
    at = {20: lambda: stage.kill(1)} if way == "dies" else None
    model = stage.fit(at, options={"timeout": 4}, max_iter=500)
    free.set()
    (event,) = events_of(model.history_)
    assert (event["event"], event["actor"], event["nodes"]) == ("lost", 1, [2, 3])
    assert {"dies": "Died", "hangs": "no answer", "is not heard": "do not arrive"}[way] in event["why"]
    assert model.n_iter_ == 500
    assert excess(toy, model, np.flatnonzero(np.isin(SITES, SURVIVORS)), SURVIVORS) < 0.01
    assert stage.runtime.live_mask().tolist() == [node in SURVIVORS for node in range(7)]


@pytest.mark.parametrize("certificate", [1, 2])
def test_a_loss_ends_a_certificate(stage, certificate):
    """No worker waits for the lost one; a later certificate is about the rows of the others."""
    calls = []

    def during(actor, method, args):  # noqa: ARG001
        calls.append(method)
        return calls.count("certify") == 3 * certificate - 1

    stage.once(during, lambda: stage.kill(1))
    model = stage.fit(stopping="gap", tol=0.05, max_iter=500, options={"timeout": 4})
    assert model.converged_
    assert "5 of 7" in model.certificate_note_
    assert [event["why"] for event in events_of(model.history_)] == ["DiedError"]


def test_diameter_gossip_cannot_go_on(stage):
    algorithm = Gadget(gossip="diffusion", gossip_rounds="diameter", gamma=0.2)
    with pytest.raises(ClusterError, match=r"gossip_rounds='diameter' needs every flag .* fixed number of rounds"):
        stage.fit({20: lambda: stage.kill(1)}, algorithm=algorithm, max_iter=60)


def test_all_lost_says_what_helps(stage, tmp_path):
    at = {20: lambda: stage.kill(0, 1, 2)}
    with pytest.raises(ClusterError, match=r"all actors are lost, .*Died.*; restart=True .*; checkpoint_dir keeps"):
        stage.fit(at, max_iter=60)
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 20}
    with pytest.raises(ClusterError, match=rf"resume=True continues from iteration [0-9]+, in {tmp_path}"):
        stage.fit(at, options=options, max_iter=60)


# the group is restored


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("lost", [(1,), (0, 1, 2)], ids=["one", "all"])
@pytest.mark.parametrize("algorithm", ["pdmm", "gadget", RUNNING_SUM], ids=["pdmm", "push-sum", "running-sum"])
def test_the_group_is_restored_to_the_simulators_bits(stage, tmp_path, algorithm, lost, checkpoint):
    options = {"restart": True, "checkpoint_every": 15}
    options |= {"checkpoint_dir": str(tmp_path)} if checkpoint else {}
    settings = {"algorithm": algorithm, "max_iter": 60}
    model = stage.fit({20: lambda: stage.kill(*lost)}, options=options, **settings)
    assert_simulators_bits(stage, model, **settings)
    assert kinds(model) == [("lost", index) for index in lost] + [("restarted", index) for index in lost]
    [since] = {event["from"] for event in events_of(model.history_)[len(lost) :]}
    assert 15 <= since <= 20 if checkpoint else since is None
    assert stage.runtime.live_mask().all()


@pytest.mark.parametrize("when", ["begin", "join", "advance"])
@pytest.mark.parametrize("lost", [(0, 2), (2,)], ids=["all others", "another"])
def test_more_are_lost_while_the_group_is_restored(stage, when, lost):
    at = {20: lambda: (stage.kill(1), stage.method(when, lambda: stage.kill(*lost), after=20))}
    if when == "advance":  # the second time: then the group is on its way to where it was
        calls = []
        at[20] = lambda: (
            stage.kill(1),
            stage.once(
                lambda _, m, __: calls.append(m == "join") or (sum(calls) > 2 and m == when), lambda: stage.kill(*lost)
            ),
        )
    model = stage.fit(at, options={"restart": True}, max_iter=60)
    assert_simulators_bits(stage, model, max_iter=60)
    assert kinds(model).count(("restarted", 2)) >= 1
    assert stage.runtime.live_mask().all()


def test_an_actor_that_dies_each_time_is_left_out(stage):
    """The others go on, and after another loss it is tried again."""

    def die_when_restored(actor, method, args):  # noqa: ARG001
        if method == "advance" and stage.runtime._restores and actor is stage.runtime.pool.actors[1]:
            actor.die()

    def begin():
        stage.ray.before = die_when_restored
        stage.kill(1)

    def end():
        stage.ray.before = lambda *_: None
        stage.kill(0)

    model = stage.fit({20: begin, 40: end}, options={"restart": True}, max_iter=60)
    events = kinds(model)
    assert events.count(("restart failed", 1)) == 1
    assert events[-2:] == [("restarted", 0), ("restarted", 1)]
    assert_simulators_bits(stage, model, max_iter=60)


def test_all_die_each_time(stage, tmp_path):
    def die(actor, method, args):  # noqa: ARG001
        if method == "advance" and stage.runtime.t >= 20:
            actor.die()

    stage.ray.before = die
    options = {"restart": True, "checkpoint_dir": str(tmp_path), "checkpoint_every": 20}
    with pytest.raises(
        ClusterError, match=r"all actors are lost, .*also after .*enough memory\?; resume=True continues"
    ):
        stage.fit(options=options, max_iter=60)
    stage.ray.before = lambda *_: None
    assert_resumes(stage, options, max_iter=60)


@pytest.mark.parametrize("why", ["rows differ", "rows absent", "no room"])
def test_a_restart_that_fails_is_tried_until_it_is_given_up(stage, monkeypatch, why):
    """The others go on then, and the history says so."""
    rows, tries = Given.rows, []

    def other_rows(self):
        found = rows(self)
        if self is stage.runtime.pool.sources[1]:
            tries.append(why)
            if why == "rows absent":
                raise FileNotFoundError("no shard")
            found.data[:] += 1
        return found

    def strike():
        pool = stage.runtime.pool
        pool.options = replace(pool.options, start_timeout=1)
        if why != "no room":
            monkeypatch.setattr(Given, "rows", other_rows)
        pool.actors[1].die(restarts=why != "no room")

    model = stage.fit({20: strike}, options={"restart": True}, max_iter=60)
    assert kinds(model) == [("lost", 1), ("restart failed", 1)]
    said = {
        "rows differ": "rows of node 2, node 3 are not those",
        "rows absent": "no shard",
        "no room": "has the cluster room",
    }
    assert said[why] in events_of(model.history_)[-1]["why"]
    assert len(tries) > 1 or why != "rows absent"
    assert not stage.runtime.live_mask()[2:4].any()


def test_a_restart_that_is_late_is_waited_for(stage):
    """Ray needs a moment to find a place for it."""

    def strike():
        stage.runtime.pool.actors[1].die(restarts=False)
        threading.Timer(0.7, stage.runtime.pool.actors[1].start).start()

    model = stage.fit({20: strike}, options={"restart": True}, max_iter=60)
    assert kinds(model) == [("lost", 1), ("restarted", 1)]
    assert_simulators_bits(stage, model, max_iter=60)


def test_messages_of_an_earlier_group_are_dropped(stage):
    sent = []

    class Recorder(Host):
        def receive(self, group, source, number, messages):
            sent.append((self.worker.index, group, source, messages))
            super().receive(group, source, number, messages)

    def deliver():
        for index, group, source, messages in [each for each in sent if each[1] == 1]:
            stage.runtime.pool.actors[index].host.receive(group, source, 50, messages)

    stage.ray.host = Recorder
    model = stage.fit({20: lambda: stage.kill(1), 40: deliver}, options={"restart": True}, max_iter=60)
    assert_simulators_bits(stage, model, max_iter=60)


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
    t = last_checkpoint(tmp_path)
    assert t == stage.runtime.t > 30
    model = assert_resumes(stage, options, max_iter=t + 15)
    calm = stage.fit(engine="local", max_iter=t + 15)
    assert model.history_[-1]["messages"] == calm.history_[-1]["messages"]


@pytest.mark.parametrize("when", ["asking", "restoring"])
def test_an_interruption_keeps_the_last_checkpoint(stage, tmp_path, when):
    """Where the actors are at two iterations, nothing is saved."""
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 20, "restart": True}

    def interrupt():
        raise KeyboardInterrupt

    def third(actor, method, args):  # noqa: ARG001
        return method == "advance" and stage.runtime.t >= 30 and actor is stage.runtime.pool.actors[2]

    if when == "asking":
        stage.once(third, interrupt)
    else:
        stage.method("join", interrupt, after=30)
    with pytest.raises(KeyboardInterrupt):
        stage.fit({30: lambda: stage.kill(*(() if when == "asking" else (0, 1, 2)))}, max_iter=100000, options=options)
    t = last_checkpoint(tmp_path)
    assert t <= stage.runtime.t
    assert_resumes(stage, options, max_iter=t + 5)


def test_an_interruption_does_not_wait_forever(stage, tmp_path, monkeypatch):
    """One actor with all nodes, in the middle of iterations."""
    options = {"actors": 1, "timeout": 0.2, "checkpoint_dir": str(tmp_path), "checkpoint_every": 20}
    advance, free = Host.advance, threading.Event()

    def slow(self, count):
        if self.worker.runtime.t >= 30:
            self.worker.block.w += 1.0
            free.wait(60)
        return advance(self, count)

    with monkeypatch.context() as patched:
        patched.setattr(Host, "advance", slow)
        interrupted_at(stage, 30)
        with pytest.raises(KeyboardInterrupt):
            stage.fit(max_iter=100000, options=options)
    free.set()
    t = last_checkpoint(tmp_path)
    assert 20 <= t <= 30
    assert_resumes(stage, {**options, "timeout": 20}, max_iter=t + 5)


def test_an_error_keeps_the_last_checkpoint(stage, tmp_path, monkeypatch):
    """Two of three are an iteration ahead when one fails."""
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 20}
    advance = Host.advance

    def failing(self, count):
        sent = advance(self, count)
        if self.worker.runtime.t > 40 and self.worker.index == 1:
            self.worker.runtime.t -= 1
            raise ArithmeticError
        return sent

    with monkeypatch.context() as patched:
        patched.setattr(Host, "advance", failing)
        with pytest.raises(ArithmeticError):
            stage.fit(max_iter=100, options=options)
    assert last_checkpoint(tmp_path) == 40
    assert_resumes(stage, options, max_iter=60)


# checkpoints


def test_a_run_is_resumed_after_its_driver_died(stage, tmp_path, monkeypatch):
    """Its end is saved too; nothing is left to do then. Another run in the folder sets its files aside."""
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 10}
    with monkeypatch.context() as patched:
        patched.setattr(driver.RayRuntime, "close", lambda _: None)
        interrupted_at(stage, 30)
        with pytest.raises(KeyboardInterrupt):
            stage.fit(max_iter=100000, options=options)
    assert 0 < last_checkpoint(tmp_path) <= 30
    model = assert_resumes(stage, options, max_iter=45)
    assert last_checkpoint(tmp_path) == 45
    again = stage.fit(options={**options, "resume": True}, max_iter=40)
    assert (again.n_iter_, len(again.history_)) == (45, 1)
    np.testing.assert_array_equal(again.node_coef_, model.node_coef_)
    with pytest.raises(ValueError, match="of another run"):
        stage.fit(options={**options, "resume": True}, max_iter=45, random_state=9)
    stage.fit(options=options, max_iter=5)
    (former,) = tmp_path.glob("former-*")
    assert (last_checkpoint(former), last_checkpoint(tmp_path)) == (45, 5)


def test_rows_that_changed_are_refused(stage, toy, tmp_path):
    """The sizes are as they were; the rows of one node are not."""
    options = {"checkpoint_dir": str(tmp_path)}
    stage.fit(max_iter=10, options=options)
    X = toy.X.copy()
    X[np.flatnonzero(SITES == 4)[2], 3] += 1e-9
    model = stage.model(max_iter=20, options={**options, "resume": True})
    with pytest.raises(ValueError, match=r"rows of node 4 are not those .*put the former rows back, or start without"):
        model.fit(X, toy.y, sites=SITES)


def test_no_checkpoint_is_made_while_an_actor_is_lost(stage, tmp_path):
    """Also if it is lost while one is made: what would be resumed is of all actors."""
    for folder, at in (("before", {20: lambda: stage.kill(1)}), ("while", None)):
        options = {"checkpoint_dir": str(tmp_path / folder), "checkpoint_every": 10}
        if at is None:
            stage.method("save", lambda: stage.kill(1), after=21)
        with pytest.warns(UserWarning, match=r"actor 1 is lost.*no more are made. It would be resumed from iteration"):
            stage.fit(at, options=options, max_iter=60)
        assert last_checkpoint(tmp_path / folder) <= 30
        assert_resumes(stage, options, max_iter=40)


def test_a_checkpoint_that_fails_ends_no_run(stage, tmp_path):
    """The folder is gone for a while: the history and a warning say so, and later ones are made again."""
    folder, away = tmp_path / "kept", tmp_path / "away"

    def hide():
        folder.rename(away)
        folder.write_text("")

    def show():
        folder.unlink()
        away.rename(folder)

    options = {"checkpoint_dir": str(folder), "checkpoint_every": 10}
    with pytest.warns(UserWarning, match=r"could not be written .* resumed from iteration"):
        model = stage.fit({10: hide, 30: show}, options=options, max_iter=50)
    assert {event["event"] for event in events_of(model.history_)} == {"checkpoint failed"}
    assert last_checkpoint(folder) == 50
    assert_simulators_bits(stage, model, max_iter=50)


def test_nothing_is_restored_at_the_end(stage, tmp_path):
    stage.method("save", lambda: stage.kill(0, 1, 2))
    options = {"restart": True, "checkpoint_dir": str(tmp_path), "checkpoint_every": 1000}
    with pytest.warns(UserWarning, match="the end of the run is not saved: all actors are lost"):
        model = stage.fit(options=options, max_iter=30)
    assert_simulators_bits(stage, model, max_iter=30)


def test_a_start_that_fails_saves_nothing(stage, toy, tmp_path, monkeypatch):
    """Also where batches before have brought the count above zero."""
    model = stage.model(max_iter=10).fit(toy.X, toy.y, sites=SITES)

    def absent(self):  # noqa: ARG001
        raise FileNotFoundError("no shard")

    monkeypatch.setattr(Given, "rows", absent)
    model.engine_options["checkpoint_dir"] = str(tmp_path)
    with pytest.raises(FileNotFoundError, match="no shard"):
        model.partial_fit(toy.X, toy.y, sites=SITES)
    assert not checkpoints.exists(tmp_path)


def test_a_block_is_saved_by_one_thread_at_a_time(monkeypatch, tmp_path):
    """A driver that was interrupted while a checkpoint is made asks for another at the end, in the same file."""
    host, busy = Host(None), threading.Lock()
    host._worker = SimpleNamespace(block=SimpleNamespace(first=0, k=2), state=lambda: ({}, {"t": 7}))

    def save_block(*_):
        if not busy.acquire(blocking=False):
            raise SaveFailedError("another thread is at it")
        time.sleep(0.05)
        busy.release()

    monkeypatch.setattr(actor_module, "save_block", save_block)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(host.save, [str(tmp_path)] * 2, [0, 0])) == [None, None]


# what is known of lost nodes


def test_lost_nodes_continue_from_the_model_they_answer_with(stage, toy):
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


def test_lost_nodes_whose_models_were_never_fetched_have_the_average(stage):
    stage.method("values", lambda: stage.kill(1))
    with pytest.warns(UserWarning, match=r"2 of 7 nodes were lost before their models were ever fetched"):
        model = stage.fit(record_every=0, max_iter=30)
    np.testing.assert_array_equal(model.node_coef_[2:4], np.repeat(model.coef_, 2, axis=0))
    weights = np.bincount(SITES).astype(float)
    weights[2:4] = 0
    np.testing.assert_allclose(model.coef_[0], np.average(model.node_coef_, axis=0, weights=weights), rtol=1e-12)


def test_a_loss_while_a_record_is_made(stage):
    """Nothing was ever seen of it: it would count as zeros, of objective 1."""
    stage.method("values", lambda: stage.kill(1))
    record = stage.fit(max_iter=30).history_[0]
    assert record["iteration"] == 10
    assert record["worst_objective"] < 0.9


def test_a_loss_after_the_last_record_is_in_the_history(stage):
    stage.once(lambda actor, method, args: (method, *args) == ("values", "weights"), lambda: stage.kill(1))  # noqa: ARG005
    model = stage.fit(max_iter=30)
    assert [event["actor"] for event in model.history_[-1]["events"]] == [1]
    assert_simulators_bits(stage, model, max_iter=30)


def test_evaluated_on_the_rows_that_were_there(stage, monkeypatch):
    """A loss between two batches of models: the objective of zeros is 1 on any rows."""
    monkeypatch.setattr(driver, "BATCH", 1)
    found, times = [], []

    def second(actor, method, args):  # noqa: ARG001
        times.append(method)
        return times.count("losses") == 4

    def evaluate():
        stage.once(second, lambda: stage.kill(1))
        found.append(stage.runtime.evaluate(np.zeros((3, *stage.runtime.shape)), 0.1).objective)

    stage.fit({10: evaluate}, max_iter=10)
    assert found[0].tolist() == [1, 1, 1]
    assert not stage.runtime.live_mask()[2:4].any()


# the start


def answered():
    found = Future()
    found.set_result(0)
    return found


@pytest.mark.parametrize(
    ("placed", "said"),
    [(True, "all of them run, and still read their rows"), (False, "1 of 3 have no place, as the cluster has 2 CPUs")],
)
def test_a_late_start_tells_slow_actors_from_actors_without_a_place(stage, monkeypatch, placed, said):
    if not placed:
        monkeypatch.setattr(Actor, "call", lambda actor, *_: Future() if actor is pool.actors[1] else answered())
    settings = SimpleNamespace(timeout=0.2, start_timeout=0.1, num_cpus=1, resources=None, memory=None)
    cluster = SimpleNamespace(ray=stage.ray, options=settings, cpus=lambda: 2.0, create=lambda *_: Actor(stage.ray))
    pool = ActorPool(cluster, ["rows"] * 3, print)
    with pytest.raises(TimeoutError, match=rf"^2 of 3 actors were not ready within start_timeout=0.1 s: {said}"):
        pool.wait_started([answered(), Future(), Future()])


def test_errors_of_actors_that_do_not_start():
    def starting(error):
        def failing(refs, timeout):  # noqa: ARG001
            raise error

        ray = Threads()
        ray.get = failing
        ref = Future()
        ref.set_result(None)
        options = SimpleNamespace(timeout=1, start_timeout=1)
        return ActorPool(SimpleNamespace(ray=ray, options=options), [], print).wait_started([ref])

    text = "The actor died\n  of \x1b[36mthis\x1b[39m:\n\nModuleNotFoundError: No module named 'gadget_svm'\n"
    with pytest.raises(ClusterError, match=r"No module named 'gadget_svm'\): install .* 'gadget-svm\[ray\]'") as told:
        starting(RayError(text))
    assert "memory" not in str(told.value)
    assert "\x1b" not in str(told.value)
    with pytest.raises(ClusterError, match=r"\(RayError: killed\): does its machine have enough memory"):
        starting(RayError("gone\nkilled"))
    with pytest.raises(ZeroDivisionError):
        starting(TaskError(ZeroDivisionError()))
    assert len(describe(RayError("x" * 1000))) == MAX_REASON_LENGTH
    assert describe(RayError()) == "RayError"
