"""A Ray cluster of our own or of others: options by name, connecting, making actors, letting go.

The only module of the driver that imports Ray, and only when it is used.
"""

import atexit
import numbers
import os
import secrets
import socket
import threading
import warnings
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from gadget_svm.cluster import checkpoints
from gadget_svm.cluster.actor import Host
from gadget_svm.cluster.sigterm import SigtermGuard
from gadget_svm.cluster.timeouts import Call, ClusterError, greet, hanging, within
from gadget_svm.core.lookup import lookup
from gadget_svm.core.temp_folders import Scratch
from gadget_svm.data.uris import require_local_path

__all__ = ["Cluster", "RayOptions", "reach", "the_ray", "within"]
MISSING = "engine='ray' needs Ray: pip install 'gadget-svm[ray]'"
INLINE = {"RAY_max_direct_call_object_size": str(2**19), "RAY_task_rpc_inlined_bytes_limit": str(100 * 2**20)}
"""Where we start Ray, batches of up to 512 KiB travel inside the call. Between two actors on one busy machine it took,
so and through the object store: 300 KB 2.5 and 3.6 ms, 1 MB 6 and 5 ms, 4 MB 16 and 8 ms, 16 MB 65 and 20 ms."""

PATIENCE = 30.0
"""Seconds to wait for a cluster's address to answer."""
FAREWELL = 15.0
"""Seconds for Ray to let us go."""
AUTO = "auto"
"""The value of resume that starts a run or continues it, whichever is possible."""
CLIENT_PORT = 10001
"""Where ray:// leads unless it says."""
NO_FAREWELL = "the cluster no longer answers, so it was left without a farewell; what was learned is whole"
STILL_HANGING = "A call to Ray still goes on that was given up, so this process cannot use Ray again: start a new one"

_KINDS: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("address",), str, "a text such as '10.0.0.5:6379'"),
    (("checkpoint_dir", "temp_dir"), (str, os.PathLike), "the name of a folder"),
    (("restart",), bool, "True or False"),
    (("resources", "runtime_env"), dict, "a dictionary"),
)


@dataclass(frozen=True)
class RayOptions:
    """The options of engine="ray", as `engine_options` names them."""

    address: str | None = None  # of a cluster; None: the one this process is connected to, else one of our own
    actors: int | None = None  # None: one for each num_cpus CPUs of the cluster, at most one a node
    num_cpus: float = 1  # of each actor; also its threads
    resources: dict[str, float] | None = None
    memory: int | None = None  # bytes that each actor reserves
    runtime_env: dict[str, Any] | None = None
    timeout: float = 60.0  # seconds after which an actor that does not answer is taken for dead
    start_timeout: float = 300.0  # seconds for actors to be placed, to read their rows and to compile
    checkpoint_dir: str | None = None
    checkpoint_every: int = 100  # iterations
    resume: bool | str = False  # "auto": if there is a checkpoint; `Cluster` decides it
    restart: bool = False
    temp_dir: str | None = None
    object_store_memory: int | None = None

    @classmethod
    def of(cls, given: dict[str, Any] | None) -> "RayOptions":
        """Checked by name and by kind."""
        if not isinstance(given, dict | None):
            raise ValueError(f"engine_options must be a dictionary such as {{'actors': 4}}, got {given!r}")
        known = {item.name: item for item in fields(cls)}
        for name in given or {}:
            lookup("option of engine 'ray'", name, known)
        options = cls(**(given or {}))
        for name in ("actors", "checkpoint_every", "memory", "object_store_memory"):
            value = getattr(options, name)
            if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__") or value < 1):
                raise ValueError(f"engine option {name} must be a whole number of at least 1, got {value!r}")
        for name in ("num_cpus", "timeout", "start_timeout"):
            value = getattr(options, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < float("inf"):
                raise ValueError(f"engine option {name} must be a positive number, got {value!r}")
        for names, kind, word in _KINDS:
            for name in names:
                value = getattr(options, name)
                if value is not None and not isinstance(value, kind):
                    raise ValueError(f"engine option {name} must be {word}, got {value!r}")
        if not isinstance(options.resume, bool) and options.resume != AUTO:
            raise ValueError(f"engine option resume must be True, False or 'auto', got {options.resume!r}")
        if options.resume and options.checkpoint_dir is None:
            raise ValueError(f"engine option resume={options.resume} needs checkpoint_dir: name the folder of the run")
        if options.temp_dir is not None:
            options = replace(
                options, temp_dir=str(require_local_path(options.temp_dir, "temp_dir is a folder of this machine"))
            )
        if options.checkpoint_dir is None:
            return options
        folder = require_local_path(
            options.checkpoint_dir,
            "checkpoints need a folder: name one as checkpoint_dir that all machines mount (NFS, or a bucket by FUSE)",
        )
        return replace(options, checkpoint_dir=str(folder.resolve()))  # actors stand elsewhere

    def decided(self) -> "RayOptions":
        """With True or False for resume="auto"."""
        if self.resume != AUTO or self.checkpoint_dir is None:
            return self
        return replace(self, resume=checkpoints.exists(Path(self.checkpoint_dir)))


def the_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError(MISSING) from error
    return ray


def reach(address: str, seconds: float) -> None:
    """An error if no Ray listens there; Ray itself would try for long, and may end the process."""
    scheme, _, place = address.rpartition("://")
    if scheme not in ("", "ray"):
        return  # an address of some other kind, that Ray knows of
    try:
        host, port = urlsplit(f"//{place}").hostname, urlsplit(f"//{place}").port or (CLIENT_PORT if scheme else None)
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        raise ValueError(f"engine option address must be HOST:PORT, 'auto' or 'local', got {address!r}")
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return  # a greeting that is not encrypted would not be answered
    try:
        within(seconds + 1, "whether it is there", lambda: greet(host, port, seconds))
    except OSError as error:
        raise ConnectionError(
            f"no Ray answers at {address} ({error}): check that its head runs ('ray status' there), that this is the "
            f"address 'ray start' printed, and that nothing between here and there blocks port {port}"
        ) from None


def _address(given: str) -> str:
    """Where "auto" leads, found as Ray finds it; an error if there is no Ray here."""
    if given != "auto":
        return given
    services: Any = import_module("ray._private.services")
    return str(services.get_ray_address_from_environment(given, None))


def _gcs_address(ray: Any) -> str:
    """Of the Ray this process is connected to; empty if it cannot be told (by a client, ray://)."""
    try:
        return str(ray.get_runtime_context().gcs_address)
    except Exception:  # a client's context has none
        return ""


def _same(given: str, here: str) -> bool:
    """Whether two addresses are one; a loopback is any of this machine's, as Ray calls itself by another."""
    (host, _, port), (own, _, own_port) = given.rpartition(":"), here.rpartition(":")
    try:
        found = socket.gethostbyname(host)
        return port == own_port and (found == socket.gethostbyname(own) or found.startswith("127."))
    except OSError:
        return given == here


class Cluster:
    """A connection to Ray: one that was there, one by address, or a small one of our own that ends with us."""

    def __init__(self, options: RayOptions) -> None:
        folder = None if options.checkpoint_dir is None else Path(options.checkpoint_dir)
        if folder is not None:
            checkpoints.check(folder, options.resume is True)
        if hanging():
            raise ClusterError(STILL_HANGING)
        self.ray, self.own = the_ray(), False
        self._run, self._made = secrets.token_hex(3), dict[int, int]()  # for the names of actors
        self._scratch: Scratch | None = None
        self._sigterm: SigtermGuard | None = None  # None: Ray was connected before
        self._held = None if folder is None else checkpoints.hold(folder)
        self.options = options.decided()  # only now: the lock keeps others out of the folder
        try:
            if self.ray.is_initialized():
                self._require_this_one()
            else:
                self._sigterm = SigtermGuard()
                self._connect()
                self._sigterm.restore()
        except BaseException:
            self._let_go()
            raise

    def _require_this_one(self) -> None:
        """This process has a Ray: an error if another one is asked for, as a process has only one."""
        given, here = self.options.address, _gcs_address(self.ray)
        if given is not None and given != "auto" and here and not _same(given, here):
            raise ValueError(
                f"engine option address is {given!r}, but this process is connected to Ray at {here}, and it can have "
                "one Ray only: leave address out to use that one, or call ray.shutdown() before"
            )
        self._warn_of_unused(f"this process is connected to Ray at {here or 'another address'} already")

    def _warn_of_unused(self, why: str) -> None:
        unused = [name for name in ("temp_dir", "object_store_memory") if getattr(self.options, name) is not None]
        if unused:
            warnings.warn(
                f"not used, as they are for a Ray that is started here: {', '.join(unused)}; {why}", stacklevel=2
            )

    def _connect(self) -> None:
        options, quiet = self.options, {"log_to_driver": False, "logging_level": "ERROR"}
        self.own = True
        if options.address is not None and options.address != "local":
            self._warn_of_unused(f"address {options.address} is that of a cluster")
            reach(_address(options.address), min(options.start_timeout, PATIENCE))
            self._join(options.address, quiet)
            return
        cores = os.cpu_count() or 1
        needed = int(np.ceil((options.actors or 1) * options.num_cpus))
        self._scratch = Scratch()
        settings: dict[str, Any] = (
            {"object_store_memory": options.object_store_memory} if (options.object_store_memory) else {}
        )
        with _Environment({**INLINE, "RAY_USAGE_STATS_ENABLED": "0"}):
            self.ray.init(
                address="local", include_dashboard=False, num_cpus=max(cores, needed), _node_ip_address="127.0.0.1",
                # a folder in one that is ours alone, as Ray opens its own to everybody
                _temp_dir=options.temp_dir or f"{self._scratch.path}/r", **settings, **quiet,
            )  # fmt: skip
        self._scratch.note_session(_session_folder())

    def _join(self, address: str, quiet: dict[str, Any]) -> None:
        """Connect to a cluster. In a thread: Ray may wait for ever. (Not so where Ray is started: its processes would
        end with the thread that started them.)"""
        too_late, limit = threading.Event(), self.options.start_timeout

        def init() -> None:
            self.ray.init(address=address, **quiet)
            if too_late.is_set():
                self.ray.shutdown()

        joining = Call(init)
        try:
            if not joining.over(limit):
                raise TimeoutError(
                    f"Ray is not connected to {address} within start_timeout={limit:g} s, though something answers "
                    "there: check that its head is well ('ray status' there), or give it longer"
                )
        finally:
            if not joining.found.done():
                too_late.set()
                self._give_up(joining)
        joining.found.result()

    def _give_up(self, call: Call) -> None:
        """Ray's own farewell at the end of the process would wait for this call."""
        call.give_up()
        atexit.unregister(self.ray.shutdown)

    def actors(self, nodes: int) -> int:
        """How many actors for so many nodes."""
        most = self.options.actors
        if most is None:
            most = int(self.cpus() / self.options.num_cpus)
        return max(1, min(most, nodes))

    def cpus(self) -> float:
        """All of the cluster."""
        found = within(self.options.timeout, "how many CPUs the cluster has", self.ray.cluster_resources)
        return float(found.get("CPU", 0))

    def make(self, index: int, source: Any, seconds: float | None = None) -> Any:
        """An actor with a name of its own, for this place among the actors.

        A cluster whose head hangs would not answer: a TimeoutError after so many seconds, else after ``start_timeout``.
        """
        options = self.options
        wishes = {"num_cpus": options.num_cpus, "resources": options.resources, "memory": options.memory}
        wishes["runtime_env"] = options.runtime_env
        given = {name: value for name, value in wishes.items() if value is not None}
        name = self._new_name(index)
        kind = self.ray.remote(Host).options(name=name, max_concurrency=8, max_restarts=0, **given)
        limit = options.start_timeout if seconds is None else seconds
        return within(limit, "that it has heard of a new actor", lambda: kind.remote(source, name))

    def _new_name(self, index: int) -> str:
        """Such as gadget-5f2c91-0; its first replacement is gadget-5f2c91-0-restart-1, as Ray takes a name once."""
        made = self._made.get(index, 0)
        self._made[index] = made + 1
        return f"gadget-{self._run}-{index}" + (f"-restart-{made}" if made else "")

    def close(self) -> None:
        """End what we started. If the cluster does not answer, a warning says so: what was learned is not at stake."""
        try:
            if self.own:
                self.own = False
                self._leave()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._sigterm is not None:
            self._sigterm.release()
            self._sigterm = None
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _leave(self) -> None:
        leaving = Call(self.ray.shutdown)
        try:
            if not leaving.over(FAREWELL):
                (leaving if _kill_own() else Call(_hang_up)).over(FAREWELL)
            if not leaving.found.done():
                warnings.warn(f"{NO_FAREWELL}. {STILL_HANGING}", stacklevel=2)
        finally:
            if not leaving.found.done():  # also if an interruption cut it short
                self._give_up(leaving)
        if leaving.found.done():
            leaving.found.result()


def _session_folder() -> str:
    """Of the Ray that this process has started."""
    return str(import_module("ray._private.worker")._global_node.get_session_dir_path())


def _kill_own() -> bool:
    """End the processes of a Ray of our own, one of which may hang; whether there are any."""
    worker: Any = import_module("ray._private.worker")
    node = worker._global_node
    own = [each for found in list(node.all_processes.values()) for each in found] if node is not None else []
    for each in own:
        each.process.kill()
    return bool(own)


def _hang_up() -> None:
    """What Ray's farewell would do next if the cluster answered: without it the process crashes at its end."""
    worker: Any = import_module("ray._private.worker").global_worker
    if worker.connected and hasattr(worker, "core_worker"):
        core = worker.core_worker
        del worker.core_worker  # not a second time, should the farewell go on one day
        core.shutdown_driver()


class _Environment:
    """Variables that Ray reads when it starts, unless the user has set them; put back afterwards."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.new = {name: value for name, value in variables.items() if name not in os.environ}

    def __enter__(self) -> None:
        os.environ.update(self.new)

    def __exit__(self, *_: Any) -> None:
        for name in self.new:
            os.environ.pop(name, None)
