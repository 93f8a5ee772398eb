"""Actors that die, hang or cannot be heard, and what becomes of the others, of Push-Sum's mass and of their places."""

import json
import signal
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gadget_svm import Gadget, GadgetSVC
from gadget_svm.cluster import actor as actor_module
from gadget_svm.cluster import connection
from gadget_svm.cluster import restarts as restarts_module
from gadget_svm.cluster.actor_pool import Crew
from gadget_svm.cluster.driver import RayRuntime
from gadget_svm.cluster.timeouts import ClusterError
from support.ray_kit import LAM, SITES, events_of, files_of, happened, kill, network, noted, observed, own_ray, until
from support.watch import watched
from support.web_server import Web

SURVIVORS = [0, 1, 4, 5, 6]  # actor 1 of three holds the nodes 2 and 3


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with own_ray():
        yield


@pytest.fixture
def runtimes(monkeypatch):
    return noted(monkeypatch)


def struck(toy, runtimes, number=signal.SIGKILL, *, actors=(1,), at=20, **settings):
    """A model some of whose actors get a signal in the middle."""

    def observe(record):
        if record["iteration"] == at:
            for actor in actors:
                kill(runtimes[-1], actor, number)

    return observed(toy, network(**settings), observe)


def excess(toy, model, rows, nodes):
    """The objective of the worst of these nodes above the optimum of these rows, as a part of it."""
    best = GadgetSVC(1, lam=LAM, random_state=0, stopping="gap", tol=1e-4).fit(toy.X[rows], toy.y[rows])

    def objective(w, b):
        y = np.where(toy.y[rows] == 1, 1, -1)
        return LAM / 2 * (w @ w + b * b) + np.maximum(0, 1 - y * (toy.X[rows] @ w + b)).mean()

    worst = max(objective(model.node_coef_[i], model.node_intercept_[i]) for i in nodes)
    return worst / objective(best.coef_[0], best.intercept_[0]) - 1


# the others go on


@pytest.mark.parametrize(
    ("number", "options", "why"),
    [(signal.SIGKILL, {}, "Died"), (signal.SIGSTOP, {"timeout": 6}, "no answer")],
    ids=["killed", "hung"],
)
def test_the_others_go_on_to_their_optimum(toy, runtimes, number, options, why):
    """An actor that dies, or says nothing any more, is left behind with its rows; the history says so."""
    model = struck(toy, runtimes, number, options=options, max_iter=500)
    check_survivors(toy, model, why)
    np.testing.assert_array_equal(runtimes[-1].live_mask(), np.isin(np.arange(7), SURVIVORS))


def check_survivors(toy, model, why):
    (event,) = happened(model)
    assert event["event"] == "lost"
    assert event["actor"] == 1
    assert event["nodes"] == [2, 3]
    assert why in event["why"]
    assert event["iteration"] >= 20
    assert model.n_iter_ == 500
    assert excess(toy, model, np.flatnonzero(np.isin(SITES, SURVIVORS)), SURVIVORS) < 0.01


def test_mail_between_two_that_does_not_arrive(toy, monkeypatch):
    """All of them answer, and wait for one another: the one that most wait for is left behind."""

    class Deaf(actor_module.Host):
        def receive(self, source, key, batch):
            if not (self.worker.index == 1 and source == 2 and key[1] > 20):
                super().receive(source, key, batch)

    monkeypatch.setattr(connection, "Host", Deaf)
    model = network(options={"timeout": 6}, max_iter=500)
    check_survivors(toy, observed(toy, model, lambda record: None), "its mail does not arrive")  # noqa: ARG005


# Push-Sum's mass


def mass_there(runtime):
    return runtime.gather("phi")[runtime.live_mask()].sum()


def weighed(runtimes, seen, at, then=None):
    """Notes events and, at the end, the mass of those who are there."""

    def observe(record):
        seen["events"] += record.get("events", [])
        if record["iteration"] == at:
            seen["there"] = mass_there(runtimes[-1])
        if then is not None:
            then(record)

    return observe


def lost_mass(events):
    return sum(event.get("mass_lost", 0.0) for event in events)


@pytest.mark.parametrize("when", ["at once", "while the first is weighed"])
def test_mass_of_two_that_are_lost_together(toy, runtimes, monkeypatch, when):
    """It is said once, with the last of them: what is lost and what is there is what was there, 60 rows."""
    seen, ask = {"events": []}, Crew.all

    def interfere(self, method, *args):
        if (method, *args) == ("values", "phi") and when != "at once" and "second" not in seen:
            seen["second"] = kill(runtimes[-1], 2)
        return ask(self, method, *args)

    def strike(record):
        if record["iteration"] == 20:
            for actor in (1, 2) if when == "at once" else (1,):
                kill(runtimes[-1], actor)

    monkeypatch.setattr(Crew, "all", interfere)
    model = network(options={"actors": 4}, algorithm="gadget", max_iter=60)
    observed(toy, model, weighed(runtimes, seen, 60, strike))
    one, last = seen["events"]
    assert {one["actor"], last["actor"]} == {1, 2}
    assert one["mass_lost_with"] == last["actor"]
    assert "mass_lost" not in one
    assert last["mass_lost"] > 0
    assert last["mass_lost"] + seen["there"] == pytest.approx(60, rel=1e-9)


def test_mass_after_a_loss_a_resumption_and_another_loss(toy, runtimes, tmp_path):
    """What was lost in both runs and what is there is all rows and those of the actor that came back."""
    settings = {"algorithm": "gadget", "max_iter": 80, "options": {"checkpoint_dir": str(tmp_path)}}
    first, then = {"events": []}, {"events": []}

    def strike(record):
        if record["iteration"] == 20:
            kill(runtimes[-1], 1)
        if record["iteration"] == 40:
            raise DeadError

    def strike_again(record):
        if record["iteration"] == 60:
            kill(runtimes[-1], 2)

    with pytest.raises(DeadError):
        observed(toy, network(**settings), weighed(runtimes, first, 40, strike))
    settings["options"]["resume"] = True
    observed(toy, network(**settings), weighed(runtimes, then, 80, strike_again))
    assert [event["event"] for event in first["events"] + then["events"]] == ["lost", "restarted", "lost"]
    came_back = runtimes[-1].sizes()[2:4].sum()
    lost = lost_mass(first["events"]), lost_mass(then["events"])
    assert min(lost) > 0
    assert sum(lost) + then["there"] == pytest.approx(60 + came_back, rel=1e-9)


def test_mass_of_one_that_came_back(toy, runtimes):
    seen = {"events": []}

    def strike(record):
        if record["iteration"] in (20, 60):
            kill(runtimes[-1], {20: 1, 60: 2}[record["iteration"]])

    model = network(options={"restart": True, "timeout": 60}, algorithm="gadget", max_iter=100)
    observed(toy, model, weighed(runtimes, seen, 100, strike))
    assert [event["event"] for event in seen["events"]] == ["lost", "restarted"] * 2
    assert lost_mass(seen["events"]) > 0
    came_back = runtimes[-1].sizes()[2:].sum()
    assert lost_mass(seen["events"]) + seen["there"] == pytest.approx(60 + came_back, rel=1e-9)


# those that come back


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_lost_actor_is_restarted(toy, runtimes, tmp_path, checkpoint):
    """From its last checkpoint where there is one; at the end all nodes have the optimum of all rows."""
    options = {"restart": True, "timeout": 60}
    if checkpoint:
        options |= {"checkpoint_dir": str(tmp_path / "kept"), "checkpoint_every": 5}
    model = struck(toy, runtimes, options=options, max_iter=800)
    lost, back = happened(model)
    assert (lost["event"], back["event"]) == ("lost", "restarted")
    assert back["nodes"] == [2, 3]
    assert (back["from"] is not None) == checkpoint
    assert runtimes[-1].live_mask().all()
    assert excess(toy, model, np.arange(60), range(7)) < 0.01


def test_what_cannot_take_nodes_back_is_given_up(toy, runtimes):
    model = struck(toy, runtimes, options={"restart": True}, algorithm=Gadget(gossip="running-sum"), max_iter=60)
    lost, failed = happened(model)
    assert (lost["event"], failed["event"]) == ("lost", "restart failed")
    assert "cannot take nodes back" in failed["why"]


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("algorithm", ["pdmm", Gadget(gossip="running-sum")], ids=["pdmm", "gadget"])
def test_all_are_lost_and_the_run_begins_again(toy, runtimes, tmp_path, algorithm, checkpoint):
    """From the last checkpoint or the beginning, to the same bits; also with what takes no single node back."""
    options = {"restart": True, "timeout": 60}
    if checkpoint:
        options |= {"checkpoint_dir": str(tmp_path / "kept"), "checkpoint_every": 5}
    settings = {"algorithm": algorithm, "max_iter": 60}
    model = struck(toy, runtimes, actors=(0, 1, 2), options=options, **settings)
    calm = network(options={"actors": 2}, **settings).fit(toy.X, toy.y, sites=SITES)
    np.testing.assert_array_equal(model.node_coef_, calm.node_coef_)
    assert [(r["iteration"], r["messages"]) for r in model.history_] == [
        (r["iteration"], r["messages"]) for r in calm.history_
    ]
    events = happened(model)
    assert [event["event"] for event in events] == ["lost"] * 3 + ["restarted"] * 3
    [since] = {event["from"] for event in events[3:]}
    assert 0 < since <= 20 if checkpoint else since is None


def test_one_alone_is_restarted_too_but_not_twice_at_one_place(toy, runtimes, monkeypatch):
    settings = {"options": {"restart": True, "actors": 1}, "max_iter": 60}
    calm = network(options={"actors": 2}, max_iter=60).fit(toy.X, toy.y, sites=SITES)
    np.testing.assert_array_equal(struck(toy, runtimes, actors=(0,), **settings).node_coef_, calm.node_coef_)
    set_out = RayRuntime._set_out

    def and_die(self, resumed):
        back = set_out(self, resumed)
        if self._began_again >= 0:
            kill(self, 0)
        return back

    monkeypatch.setattr(RayRuntime, "_set_out", and_die)
    with pytest.raises(ClusterError, match=r"all actors are lost, the last by .*once more where they were lost before"):
        struck(toy, runtimes, actors=(0,), **settings)


def test_all_others_are_lost_while_one_comes_back(toy, runtimes, monkeypatch):
    """The run begins again with new ones in all places, to the same bits."""
    make, made = restarts_module.Restarts._make, []

    def and_strike(self, index, now):
        make(self, index, now)
        made.append(index)
        for actor in (0, 2) if len(made) == 1 else ():
            kill(runtimes[-1], actor)

    monkeypatch.setattr(restarts_module.Restarts, "_make", and_strike)
    model = struck(toy, runtimes, options={"restart": True, "timeout": 60}, max_iter=60)
    calm = network(options={"actors": 2}, max_iter=60).fit(toy.X, toy.y, sites=SITES)
    np.testing.assert_array_equal(model.node_coef_, calm.node_coef_)
    assert [event["event"] for event in happened(model)] == ["lost"] * 3 + ["restarted"] * 3


def test_one_is_lost_on_the_way_of_a_new_beginning(toy, runtimes, monkeypatch):
    set_out = RayRuntime._set_out

    def and_strike(self, resumed):
        back = set_out(self, resumed)
        if self._began_again >= 0:
            kill(self, 1)
        return back

    monkeypatch.setattr(RayRuntime, "_set_out", and_strike)
    settings = {"algorithm": Gadget(gossip="running-sum"), "max_iter": 60}
    model = struck(toy, runtimes, actors=(0, 1, 2), options={"restart": True, "timeout": 60}, **settings)
    told = [(event["event"], event["actor"]) for event in happened(model)[3:]]
    assert told == [("restarted", 0), ("restarted", 1), ("restarted", 2), ("lost", 1), ("restart failed", 1)]
    np.testing.assert_array_equal(runtimes[-1].live_mask(), np.isin(np.arange(7), SURVIVORS))


@pytest.mark.parametrize("fate", ["killed", "interrupted"])
def test_what_ends_a_new_beginning_leaves_the_checkpoint_as_it_was(toy, runtimes, tmp_path, monkeypatch, fate):
    options = {"restart": True, "checkpoint_dir": str(tmp_path), "checkpoint_every": 5}
    set_out = RayRuntime._set_out

    def and_end(self, resumed):
        back = set_out(self, resumed)
        if self._began_again >= 0:
            self.t = 40  # as if it had been on its way
            if fate == "interrupted":
                raise KeyboardInterrupt
            for actor in range(3):
                kill(self, actor)
        return back

    with monkeypatch.context() as patched:
        patched.setattr(RayRuntime, "_set_out", and_end)
        with pytest.raises(KeyboardInterrupt if fate == "interrupted" else ClusterError):
            struck(toy, runtimes, actors=(0, 1, 2), options=options, max_iter=60)
    model = network(options={**options, "resume": True}, max_iter=60).fit(toy.X, toy.y, sites=SITES)
    calm = network(options={"actors": 2}, max_iter=60).fit(toy.X, toy.y, sites=SITES)
    np.testing.assert_array_equal(model.node_coef_, calm.node_coef_)


def test_all_are_lost_and_what_can_be_done_is_said(toy, runtimes, tmp_path):
    with pytest.raises(ClusterError, match=r"all actors are lost, .*Died.*; restart=True starts new ones"):
        struck(toy, runtimes, actors=(0, 1, 2), max_iter=60)
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 5}
    with pytest.raises(ClusterError, match=rf"resume=True goes on from iteration [0-9]+, in {tmp_path}"):
        struck(toy, runtimes, actors=(0, 1, 2), options=options, max_iter=60)


class Watch:
    """A fit of five shards on three actors. The second actor, which has the shards 1 and 2, is killed in the middle;
    the fit goes on until it is back, or somebody says that it is ``done``."""

    def __init__(self, runtimes, places, **options):
        self.runtimes, self.places, self.events = runtimes, places, []
        self.model = network(n_nodes=None, options={"restart": True, **options}, max_iter=10**6)
        self.killed = self.done = False

    def fit(self, at_death=None, look=None):
        """``look(iteration, new events)`` sees every record."""

        def observe(record, view):  # noqa: ARG001
            new = record.get("events", [])
            self.events += new
            self.done = self.done or "restarted" in [event["event"] for event in new]
            if look is not None:
                look(record["iteration"], new)
            if not self.killed and record["iteration"] >= 20:
                self.killed = True
                if at_death is not None:
                    at_death()
                kill(self.runtimes[-1], 1)

        watched(self.model, observe, lambda: self.done)._fit_remote(self.places)
        return self.events


@pytest.mark.parametrize("damage", ["absent", "other rows"])
def test_a_restart_that_fails_is_tried_again(toy, runtimes, tmp_path, monkeypatch, damage):
    """Its file is away for a while, or is not what it was: the history says so, the others go on, and then it is in."""
    monkeypatch.setattr(restarts_module, "FIRST", 0.5)
    paths = files_of(toy, tmp_path)
    kept = paths[2].read_bytes()

    def harm():
        if damage == "absent":
            paths[2].unlink()
        else:
            paths[2].write_bytes(paths[3].read_bytes())

    def mend(iteration, new):  # noqa: ARG001
        if "restart failed" in [event["event"] for event in new]:
            paths[2].write_bytes(kept)

    lost, failed, *_, back = Watch(runtimes, paths, timeout=60).fit(harm, mend)
    assert [event["event"] for event in (lost, failed, back)] == ["lost", "restart failed", "restarted"]
    assert failed["actor"] == back["actor"] == 1
    assert "part-2.svm" in failed["why"]
    assert "part-1.svm" not in failed["why"]
    assert ("node 2" in failed["why"]) == (damage == "other rows")
    assert back["iteration"] > failed["iteration"] >= lost["iteration"]
    assert runtimes[-1].live_mask().all()


class Hold:
    """The second time that shard 1 is read takes until it is let go."""

    def __init__(self):
        self.times, self.free = 0, threading.Event()

    def __call__(self, path):
        if path == "/part-1.svm":
            self.times += 1
            if self.times == 2:
                self.free.wait(60)


def test_a_restart_that_comes_late(toy, runtimes, tmp_path):
    """The others wait ``timeout`` for it and go on without it; when it is there, it is let in."""
    files_of(toy, tmp_path)
    hold, released = Hold(), []

    def look(iteration, new):  # noqa: ARG001
        if hold.times == 2 and not released:
            released.append(iteration)
            hold.free.set()

    with Web(tmp_path, hold) as web:
        lost, back = Watch(runtimes, [web.url(f"part-{i}.svm") for i in range(5)], timeout=8).fit(None, look)
    assert (lost["event"], back["event"]) == ("lost", "restarted")
    assert lost["iteration"] < released[0] <= back["iteration"]
    assert runtimes[-1].live_mask().all()


def test_a_restart_that_does_not_come_is_ended_and_tried_again(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(restarts_module, "FIRST", 0.5)
    files_of(toy, tmp_path)
    hold = Hold()

    def hurry(runtime):
        runtime._restarts.options = replace(runtime.options, start_timeout=1)

    def relax(iteration, new):  # noqa: ARG001
        if "restart failed" in [event["event"] for event in new]:
            runtimes[-1]._restarts.options = runtimes[-1].options

    runtimes = noted(monkeypatch, hurry)
    with Web(tmp_path, hold) as web:
        watch = Watch(runtimes, [web.url(f"part-{i}.svm") for i in range(5)], timeout=8)
        try:
            lost, failed, *_, back = watch.fit(None, relax)
        finally:
            hold.free.set()
    assert [event["event"] for event in (lost, failed, back)] == ["lost", "restart failed", "restarted"]
    assert "not there within start_timeout=1 s" in failed["why"]
    assert runtimes[-1].live_mask().all()


@pytest.mark.parametrize("why", ["Dead", "did not hear"])
def test_the_pause_after_a_failure_doubles(monkeypatch, why):
    """On a clock of its own: 5 seconds, 10 and so on to 300; only the first attempt is waited for. An actor dies, or
    the cluster's head does not hear that it is to be made."""
    dead, waits, made, clock = type("Dead", (Exception,), {}), [], [], [0]

    def make(index, source, seconds):  # noqa: ARG001
        made.append(clock[0])
        if why == "did not hear":
            raise TimeoutError(why)

    def fail(ref, timeout):  # noqa: ARG001
        raise dead

    def wait(refs, num_returns=1, *, timeout):  # noqa: ARG001
        waits.append(timeout)
        return refs, []

    stand_in = SimpleNamespace(
        get=fail, wait=wait, exceptions=SimpleNamespace(RayError=dead, RayTaskError=type("Task", (dead,), {}))
    )
    crew = SimpleNamespace(
        ray=stand_in, options=SimpleNamespace(timeout=7, start_timeout=9), sources=["rows"], end=lambda _: None,
        cluster=SimpleNamespace(make=make),
    )  # fmt: skip
    monkeypatch.setattr(restarts_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    failures = []
    restarts = restarts_module.Restarts(crew, lambda *_: "answer", None, lambda _, why: failures.append(why))
    for clock[0] in range(1000):
        restarts.step([0])
    assert np.diff(made).tolist() == [5, 10, 20, 40, 80, 160, 300, 300]
    assert failures == [why] * len(made)
    assert waits == ([7] + [0] * len(made) if why == "Dead" else [])


def test_one_that_is_not_in_yet_ends_with_the_run(toy, runtimes, tmp_path):
    from ray._private.state import actors

    files_of(toy, tmp_path)
    hold = Hold()
    with Web(tmp_path, hold) as web:
        watch = Watch(runtimes, [web.url(f"part-{i}.svm") for i in range(5)], timeout=8)

        def look(iteration, new):  # noqa: ARG001
            watch.done = hold.times == 2

        try:
            assert [event["event"] for event in watch.fit(None, look)] == ["lost"]
            until(lambda: {about["State"] for about in actors().values()} == {"DEAD"}, 20)
        finally:
            hold.free.set()


# runs that are resumed


class DeadError(Exception):
    """The driver's end."""


def test_a_run_that_had_lost_an_actor_is_resumed_with_all(toy, runtimes, tmp_path):
    """The driver dies after one of its actors: at the end all nodes have the optimum of all rows."""
    options = {"checkpoint_dir": str(tmp_path), "checkpoint_every": 10}

    def strike(record):
        if record["iteration"] == 40:
            kill(runtimes[-1], 1)
        if record["iteration"] == 100:
            raise DeadError

    with pytest.raises(DeadError):
        observed(toy, network(options=options, max_iter=800, record_every=20), strike)
    about = json.loads((tmp_path / "run.json").read_text())
    assert about["kept"][1] < about["t"] == about["kept"][0] == about["kept"][2]
    resumed = network(options={**options, "resume": True}, max_iter=800).fit(toy.X, toy.y, sites=SITES)
    (event,) = events_of(resumed.history_)
    assert (event["event"], event["actor"], event["from"]) == ("restarted", 1, about["kept"][1])
    assert excess(toy, resumed, np.arange(60), range(7)) < 0.01


def test_rows_that_changed_are_refused(toy, tmp_path):
    """The sizes are as they were; it is the rows of one node that are not."""
    settings = {"algorithm": "pdmm", "options": {"checkpoint_dir": str(tmp_path), "actors": 1}}
    network(max_iter=10, **settings).fit(toy.X, toy.y, sites=SITES)
    settings["options"]["resume"] = True
    X = toy.X.copy()
    X[np.flatnonzero(SITES == 4)[2], 3] += 1e-9
    with pytest.raises(ValueError, match=r"rows of node 4 are not those .*put the former ones back, or start anew"):
        network(max_iter=20, **settings).fit(X, toy.y, sites=SITES)
    with pytest.raises(ValueError, match=r"of another run: .*; the rows of node 4 are not"):
        network(max_iter=20, **settings, random_state=6).fit(X, toy.y, sites=SITES)


def test_files_that_changed_are_named(toy, tmp_path):
    paths = files_of(toy, tmp_path)
    settings = {"n_nodes": None, "options": {"checkpoint_dir": str(tmp_path / "kept"), "actors": 2}}
    network(max_iter=10, **settings).fit_shards(paths)
    paths[1].write_bytes(paths[3].read_bytes())
    settings["options"]["resume"] = True
    with pytest.raises(ValueError, match=r"rows of node 1 \(.*part-1.svm\) are not those the checkpoint"):
        network(max_iter=20, **settings).fit_shards(paths)


def test_a_checkpoint_of_before_rows_were_noted(toy, tmp_path):
    """It is gone on from; what its rows were, nobody can say."""
    settings = {"algorithm": "pdmm", "options": {"checkpoint_dir": str(tmp_path), "actors": 1}}
    network(max_iter=10, **settings).fit(toy.X, toy.y, sites=SITES)
    about = json.loads((tmp_path / "run.json").read_text())
    assert len(about.pop("rows")) == 7
    (tmp_path / "run.json").write_text(json.dumps(about))
    settings["options"]["resume"] = True
    assert network(max_iter=20, **settings).fit(toy.X, toy.y, sites=SITES).n_iter_ == 20
    assert len(json.loads((tmp_path / "run.json").read_text())["rows"]) == 7
