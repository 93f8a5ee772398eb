"""The connection to a Ray cluster: joins one or starts a small one, creates actors, and leaves.

Owns every call to Ray that may block without limit. In the driver only this module imports Ray, and
only when it is used.
"""

import atexit
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from gadget_svm.cluster import checkpoints
from gadget_svm.cluster.actor import Host
from gadget_svm.cluster.options import RayOptions
from gadget_svm.core.extras import require
from gadget_svm.core.temp_folders import scratch_folder

LOCAL_RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_max_direct_call_object_size": str(2**19),
    "RAY_task_rpc_inlined_bytes_limit": str(100 * 2**20),
}
"""A Ray that is started here sends batches of up to 512 KiB inside the call. Measured between two actors on one busy
machine, inside the call and through the object store: 300 KB take 2.5 and 3.6 ms, 1 MB 6 and 5 ms, 4 MB 16 and 8 ms."""
QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
CONNECT_TIMEOUT_S = 60.0
SHUTDOWN_TIMEOUT_S = 15.0
CLIENT_PORT = 10001
"""The port that is used if a ray:// address has none."""
ABANDONED = "abandoned call to Ray"
"""The name of a thread whose call to Ray did not return in time."""
TRIAL = f"import ray, sys; ray.init(address=sys.argv[1], **{QUIET!r})"


class ClusterError(RuntimeError, ConnectionError):
    """A run on a cluster cannot start or continue; the message says what to do."""


def call_within(seconds: float, what: str, call: Callable[[], Any]) -> Any:
    """Return the call's result, or raise a TimeoutError after ``seconds``: "Ray did not ``what`` within ...".

    The call runs in a thread of its own. After a timeout or an interruption the call continues in that thread, and its
    result is ignored.
    """
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        if not wait([future], timeout=seconds).done:
            raise TimeoutError(f"Ray did not {what} within {seconds:g} s")
        return future.result()
    finally:
        if not future.done():
            thread.name = ABANDONED
            if "ray" in sys.modules:  # its shutdown at the end of the process would wait for this call
                atexit.unregister(sys.modules["ray"].shutdown)


def has_abandoned_call() -> bool:
    """True if a call to Ray that timed out still runs in this process."""
    return any(thread.name == ABANDONED for thread in threading.enumerate())


def require_reachable(address: str, seconds: float) -> None:
    """Raise a ConnectionError unless a Ray cluster can be joined at the address.

    Another process tries to join: if something other than Ray listens at the address, `ray.init` may wait without
    limit, or end the process.
    """
    try:
        if address != "auto":
            socket.create_connection(_host_and_port(address), seconds).close()
        trial = [sys.executable, "-c", TRIAL, address]
        done = subprocess.run(trial, capture_output=True, text=True, timeout=seconds, check=False)
        problem = last_line(done.stderr) or f"exit code {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"no answer within {seconds:g} s"
    except OSError as error:
        problem = str(error)
    if problem:
        raise ConnectionError(
            f"no Ray answers at {address} ({problem}): check that its head runs ('ray status' there), that this is the "
            "address 'ray start' printed, and that no firewall blocks its ports"
        ) from None


def last_line(text: str) -> str:
    """Return the last line that is not blank. In Ray's errors this line names the cause."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def _host_and_port(address: str) -> tuple[str, int]:
    url = urlsplit(address if "://" in address else f"//{address}")
    with suppress(ValueError):  # its port is no number
        port = url.port or (CLIENT_PORT if url.scheme else None)
        if url.hostname and port:
            return url.hostname, port
    raise ValueError(f"engine option address must be HOST:PORT, 'auto' or 'local', got {address!r}")


class Cluster:
    """A connection to Ray: the existing one of this process, a cluster at an address, or a local Ray for this run.

    Parameters
    ----------
    options : RayOptions
        The options; in the attribute ``options``, resume="auto" is replaced by True or False.
    """

    def __init__(self, options: RayOptions) -> None:
        folder = None if options.checkpoint_dir is None else Path(options.checkpoint_dir)
        if folder is not None:
            checkpoints.require_usable(folder, options.resume is True)
        if has_abandoned_call():
            raise ClusterError("an earlier call to Ray has not returned, so this process cannot use Ray: start another")
        self.ray, self._run = require("ray", "engine='ray' needs", "ray"), secrets.token_hex(3)
        with ExitStack() as stack:
            if folder is not None:
                stack.enter_context(checkpoints.hold(folder))
            self.options = options.decide_resume()  # only now: the lock keeps others out of the folder
            if self.ray.is_initialized():
                self._require_this_one()
            else:
                handler: Any = signal.getsignal(signal.SIGTERM)
                stack.callback(set_sigterm_handler, handler)
                self._connect(stack)  # Ray sets a handler that ends its processes at once
                set_sigterm_handler(exit_on_sigterm if handler == signal.SIG_DFL else handler)
            self._stack = stack.pop_all()

    def _require_this_one(self) -> None:
        """Raise a ValueError if this process is connected to Ray at another address than requested."""
        given, current = self.options.address, ""
        with suppress(Exception):  # a client, ray://, has no such address and fails in its own way
            current = str(self.ray.get_runtime_context().gcs_address)
        if current and given not in (None, "auto", current):
            raise ValueError(
                f"engine option address is {given!r}, but this process is connected to Ray at {current}, and it can "
                "have one Ray only: leave address out to use that one, or call ray.shutdown() before"
            )

    def _connect(self, stack: ExitStack) -> None:
        """Join the cluster at the address, or start a local Ray. Closing the stack undoes this."""
        options, address, limit = self.options, self.options.address, self.options.start_timeout
        if address not in (None, "local"):
            require_reachable(address, min(limit, CONNECT_TIMEOUT_S))
            call_within(limit, f"connect to {address}", lambda: self.ray.init(address=address, **QUIET))
        else:
            scratch = stack.enter_context(scratch_folder())
            cpus = max(os.cpu_count() or 1, int(np.ceil((options.actors or 1) * options.num_cpus)))
            for name in LOCAL_RAY_SETTINGS.keys() - os.environ.keys():
                os.environ[name] = LOCAL_RAY_SETTINGS[name]
                stack.callback(os.environ.pop, name, None)
            # In this thread, as Ray's processes end with the one that starts them. In a folder inside one that only
            # this user can open: Ray makes its own folder readable for all.
            self.ray.init(
                address="local", include_dashboard=False, num_cpus=cpus, _node_ip_address="127.0.0.1",
                _temp_dir=str(options.temp_dir or f"{scratch}/r"),
                object_store_memory=options.object_store_memory, **QUIET,
            )  # fmt: skip
        stack.callback(self._disconnect)

    def _disconnect(self) -> None:
        """Disconnect from Ray. If Ray does not answer, only warn, because this process has the models already."""
        try:
            call_within(SHUTDOWN_TIMEOUT_S, "disconnect", self.ray.shutdown)
        except TimeoutError as error:
            what_now = "the models are complete, but this process cannot use Ray again: start another"
            warnings.warn(f"{error}; {what_now}", stacklevel=2)

    def actors(self, nodes: int) -> int:
        """Return the number of actors for this number of nodes."""
        return max(1, min(self.options.actors or int(self.cpus() / self.options.num_cpus), nodes))

    def cpus(self) -> float:
        """Return the number of CPUs of the cluster."""
        found = call_within(self.options.timeout, "report the cluster's CPUs", self.ray.cluster_resources)
        return float(found.get("CPU", 0))

    def create(self, index: int, source: Any) -> Any:
        """Return a new named actor with number ``index``. Ray restarts it after a loss if the options say so."""
        options, name = self.options, f"gadget-{self._run}-{index}"
        kind = self.ray.remote(Host).options(
            name=name, num_cpus=options.num_cpus, resources=options.resources, memory=options.memory,
            runtime_env=options.runtime_env, max_concurrency=8, max_restarts=-1 if options.restart else 0,
        )  # fmt: skip
        return call_within(options.start_timeout, "register a new actor", lambda: kind.remote(source, name))

    def close(self) -> None:
        """Undo what was done here: end a local Ray, disconnect, release the checkpoints' folder. Idempotent."""
        self._stack.close()


def set_sigterm_handler(handler: Any) -> None:
    """Set the handler of SIGTERM. Outside the main thread do nothing, as Ray sets no handler there."""
    if handler is not None and threading.current_thread() is threading.main_thread():  # None: not Python's
        signal.signal(signal.SIGTERM, handler)


def exit_on_sigterm(number: int, _frame: FrameType | None) -> None:
    """End the process as SIGTERM would, but by a SystemExit: the run saves a checkpoint and ends its actors."""
    raise SystemExit(128 + number)
