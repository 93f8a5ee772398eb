"""A Ray cluster of our own or of others: options by name, connecting, making actors, letting go.

The only module that imports Ray, and only when it is used.
"""

import numbers
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from gadget_svm.names import lookup
from gadget_svm.runtimes.ray_host import Host

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
MISSING = "engine='ray' needs Ray: pip install 'gadget-svm[ray]'"
INLINE = {"RAY_max_direct_call_object_size": str(2**19), "RAY_task_rpc_inlined_bytes_limit": str(100 * 2**20)}
"""Where we start Ray, batches of up to 512 KiB travel inside the call. Between two actors on one busy machine it took,
so and through the object store: 300 KB 2.5 and 3.6 ms, 1 MB 6 and 5 ms, 4 MB 16 and 8 ms, 16 MB 65 and 20 ms."""

PATIENCE = 30.0
"""Seconds to wait for a cluster's address to answer."""
CLIENT_PORT = 10001
"""Where ray:// leads unless it says."""


_KINDS: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    (("address",), str, "a text such as '10.0.0.5:6379'"),
    (("checkpoint_dir", "temp_dir"), (str, os.PathLike), "the name of a folder"),
    (("resume", "restart"), bool, "True or False"),
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
    resume: bool = False
    restart: bool = False
    temp_dir: str | None = None
    object_store_memory: int | None = None

    @classmethod
    def of(cls, given: dict[str, Any] | None) -> "RayOptions":
        """Checked by name and by kind."""
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
        if options.resume and options.checkpoint_dir is None:
            raise ValueError("engine option resume=True needs checkpoint_dir: where is the run to be resumed?")
        if options.checkpoint_dir is None:
            return options
        return replace(options, checkpoint_dir=str(Path(options.checkpoint_dir).resolve()))  # actors stand elsewhere


def the_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError(MISSING) from error
    return ray


def within(seconds: float, what: str, call: Callable[[], Any]) -> Any:
    """The call's result, or its error; a TimeoutError if it takes longer. What Ray gives no timeout for, goes on."""
    found: Future[Any] = Future()

    def work() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    wait([found], timeout=seconds)
    if not found.done():
        raise TimeoutError(f"Ray did not say within {seconds:g} s {what}")
    return found.result()


def reach(address: str, seconds: float) -> None:
    """An error if nobody listens there; Ray itself would try for long, and may end the process."""
    scheme, _, place = address.rpartition("://")
    if scheme not in ("", "ray"):
        return  # an address of some other kind, that Ray knows of
    try:
        host, port = urlsplit(f"//{place}").hostname, urlsplit(f"//{place}").port or (CLIENT_PORT if scheme else None)
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        raise ValueError(f"engine option address must be HOST:PORT, 'auto' or 'local', got {address!r}")
    try:
        within(seconds, "whether it is there", lambda: socket.create_connection((host, port), seconds).close())
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


class Cluster:
    """A connection to Ray: one that was there, one by address, or a small one of our own that ends with us."""

    def __init__(self, options: RayOptions) -> None:
        self.ray, self.options, self.own = the_ray(), options, False
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if not self.ray.is_initialized():
            self._connect()

    def _connect(self) -> None:
        options, quiet = self.options, {"log_to_driver": False, "logging_level": "ERROR"}
        self.own = True
        if options.address is not None and options.address != "local":
            reach(_address(options.address), min(options.start_timeout, PATIENCE))
            self.ray.init(address=options.address, **quiet)
            return
        cores = os.cpu_count() or 1
        needed = int(np.ceil((options.actors or 1) * options.num_cpus))
        if options.temp_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="gadget")  # short: sockets in it have long names
        settings: dict[str, Any] = (
            {"object_store_memory": options.object_store_memory} if (options.object_store_memory) else {}
        )
        with _Environment({**INLINE, "RAY_USAGE_STATS_ENABLED": "0"}):
            self.ray.init(
                address="local", include_dashboard=False, num_cpus=max(cores, needed), _node_ip_address="127.0.0.1",
                _temp_dir=options.temp_dir or (self._temporary.name if self._temporary else None), **settings, **quiet,
            )  # fmt: skip

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

    def make(self, source: Any) -> Any:
        """An actor."""
        options = self.options
        wishes = {"num_cpus": options.num_cpus, "resources": options.resources, "memory": options.memory}
        wishes["runtime_env"] = options.runtime_env
        given = {name: value for name, value in wishes.items() if value is not None}
        return self.ray.remote(Host).options(max_concurrency=8, max_restarts=0, **given).remote(source)

    def close(self) -> None:
        """End what we started."""
        if self.own:
            self.ray.shutdown()
            self.own = False
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


class _Environment:
    """Variables that Ray reads when it starts, unless the user has set them; put back afterwards."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.new = {name: value for name, value in variables.items() if name not in os.environ}

    def __enter__(self) -> None:
        os.environ.update(self.new)

    def __exit__(self, *_: Any) -> None:
        for name in self.new:
            os.environ.pop(name, None)
