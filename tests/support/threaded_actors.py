"""A stand-in for Ray, for tests of the driver: actors are hosts in threads of this process, which die when a test says
so and are restarted as Ray restarts them. It cannot show Ray's own behaviour."""

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from types import SimpleNamespace

import numpy as np

from gadget_svm import GadgetSVC
from gadget_svm.cluster import checkpoints, connection
from gadget_svm.cluster.actor import Host
from gadget_svm.cluster.driver import RayRuntime
from gadget_svm.estimator import remote_fit
from support.watch import watched

LAM = 0.05
SITES = np.arange(60) % 7


class RayError(Exception):
    """Ray's."""


class DiedError(RayError):
    """An actor did."""


class TaskError(RayError):
    """An actor's method raised."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class GetTimeoutError(RayError, TimeoutError):
    """An answer did not come."""


class Ended(set):
    """The lost workers, as a worker sees them whose process has ended."""

    def __contains__(self, worker):
        raise DiedError


class Actor:
    """A host; its methods are called as Ray's are. With ``restarts`` a new host takes the place of one that dies."""

    def __init__(self, ray, source=None, restarts=False):
        self.ray, self.source, self.restarts, self.lock = ray, source, restarts, threading.Lock()
        self.start()

    def start(self):
        self.host, self.dead, self.refs = self.ray.host(self.source), False, set()

    def __getattr__(self, method):
        retried = SimpleNamespace(remote=lambda *args: self.retry(method, *args))
        return SimpleNamespace(remote=lambda *args: self.call(method, *args), options=lambda **_: retried)

    def retry(self, method, *args):
        """A call that waits for the actor to be restarted, as with max_task_retries=-1."""
        ref = Future()

        def work():
            while True:
                while self.dead:
                    time.sleep(0.01)
                try:
                    return ref.set_result(self.call(method, *args).result())
                except DiedError:
                    pass
                except TaskError as error:
                    return ref.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return ref

    def call(self, method, *args):
        self.ray.asked.append(method)
        self.ray.before(self, method, args)
        ref = Future()
        with self.lock:
            if self.dead:
                ref.set_exception(DiedError())
                return ref
            self.refs.add(ref)
        threading.Thread(target=self.work, args=(self.host, ref, method, args), daemon=True).start()
        return ref

    def work(self, host, ref, method, args):
        try:
            found, error = getattr(host, method)(*args), None
        except BaseException as raised:
            found, error = None, TaskError(raised)
        with self.lock:
            if not ref.done():
                ref.set_result(found) if error is None else ref.set_exception(error)
            self.refs.discard(ref)

    def die(self, restarts=None):
        """Its calls fail, and its threads end as soon as they send or wait."""

        def fail(*_):
            raise DiedError

        with self.lock:
            self.dead = True
            for ref in self.refs:
                if not ref.done():
                    ref.set_exception(DiedError())
            if (worker := self.host._worker) is not None:
                worker.post = fail
                with worker._changed:
                    worker.lost = Ended()
                    worker._changed.notify_all()
            if self.restarts if restarts is None else restarts:
                self.start()


class Threads:
    """What the driver uses of the module ray.

    ``before(actor, method, args)`` sees every call, ``waiting(refs)`` every wait; ``asked`` are the methods that were
    called; ``host`` makes an actor's host.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=TaskError, GetTimeoutError=GetTimeoutError)

    def __init__(self):
        self.asked, self.host = [], Host
        self.before = self.waiting = lambda *_: None

    def put(self, value):
        return value

    def kill(self, actor, no_restart=True):
        actor.die(restarts=not no_restart)

    def get(self, refs, timeout):
        if isinstance(refs, list):
            return [self.get(ref, timeout) for ref in refs]
        try:
            return refs.result(timeout)
        except Late:
            raise GetTimeoutError from None

    def wait(self, refs, num_returns=1, timeout=None):
        self.waiting(refs)
        end = time.monotonic() + timeout
        while sum(ref.done() for ref in refs) < num_returns and time.monotonic() < end:
            time.sleep(0.001)
        ready = [ref for ref in refs if ref.done()][:num_returns]
        return ready, [ref for ref in refs if ref not in ready]


class Place:
    """Stands for `Cluster`."""

    def __init__(self, options, ray):
        if options.checkpoint_dir is not None:
            checkpoints.require_usable(connection.Path(options.checkpoint_dir), options.resume is True)
        self.options, self.ray = options.decide_resume(), ray

    def actors(self, nodes):
        return min(self.options.actors, nodes)

    def cpus(self):
        return 2.0

    def create(self, index, source):  # noqa: ARG002
        return Actor(self.ray, source, self.options.restart)

    def close(self):
        pass


class Stage:
    """Fits of seven nodes on three actors; the last runtime is ``runtime``."""

    def __init__(self, monkeypatch, toy):
        self.toy, self.ray, self.runtime = toy, Threads(), None
        for module in (connection, remote_fit):
            monkeypatch.setattr(module, "Cluster", lambda options: Place(options, self.ray))
        begin = RayRuntime.begin

        def noted(runtime, *args, **kwargs):
            self.runtime = runtime
            begin(runtime, *args, **kwargs)

        monkeypatch.setattr(RayRuntime, "begin", noted)

    def model(self, engine="ray", **settings):
        options = {"actors": 3, "timeout": 20, "start_timeout": 120, **settings.pop("options", {})}
        given = {
            "topology": "complete", "lam": LAM, "random_state": 5, "stopping": None, "record_every": 10, **settings,
        }  # fmt: skip
        return GadgetSVC(7, engine=engine, engine_options=options if engine == "ray" else None, **given)

    def fit(self, at=None, *, engine="ray", **settings):
        """``at`` says what to do at an iteration's record."""

        def observe(record, view):  # noqa: ARG001
            if at is not None and record["iteration"] in at:
                at[record["iteration"]]()

        model = self.model(engine, **settings)
        return watched(model, observe).fit(self.toy.X, self.toy.y, sites=SITES)

    def kill(self, *indices):
        for index in indices:
            self.runtime.pool.actors[index].die()

    def once(self, true, do):
        """Do it at the first call for which ``true(actor, method, args)``."""

        def before(*call):
            if true(*call):
                self.ray.before = lambda *_: None
                do()

        self.ray.before = before

    def method(self, name, do, after=0):
        """Do it when the driver first calls this method of an actor in an iteration from ``after`` on."""
        self.once(lambda actor, method, args: method == name and self.runtime.t >= after, do)  # noqa: ARG005
