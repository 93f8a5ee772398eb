"""The options of engine="ray", by name, and their checks. Imports no Ray."""

import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gadget_svm.cluster import checkpoints
from gadget_svm.core.lookup import lookup
from gadget_svm.data.uris import require_local_path

AUTO = "auto"
"""The value of ``resume`` that continues a run if there is a checkpoint, and starts it otherwise."""


def _is_count(value: Any) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__") and value >= 1


def _is_positive(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and 0 < float(value) < float("inf")


_CHECKS: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (("actors", "checkpoint_every", "memory", "object_store_memory"), _is_count, "a whole number of at least 1"),
    (("num_cpus", "timeout", "start_timeout"), _is_positive, "a positive number"),
    (("address",), lambda value: isinstance(value, str), "a text such as '10.0.0.5:6379'"),
    (("checkpoint_dir", "temp_dir"), lambda value: isinstance(value, str | os.PathLike), "the name of a folder"),
    (("restart",), lambda value: isinstance(value, bool), "True or False"),
    (("resources", "runtime_env"), lambda value: isinstance(value, dict), "a dictionary"),
    (("resume",), lambda value: isinstance(value, bool) or value == AUTO, "True, False or 'auto'"),
)


@dataclass(frozen=True)
class RayOptions:
    """The options of engine="ray", as ``engine_options`` names them.

    Attributes
    ----------
    address : str, default=None
        Address of a cluster. None uses the Ray that this process is connected to, or starts a local Ray.
    actors : int, default=None
        Number of actors. None takes one for each ``num_cpus`` CPUs of the cluster, at most one per node.
    num_cpus : float, default=1
        CPUs that Ray reserves for each actor, which is also its number of threads.
    resources, memory, runtime_env : default=None
        Requirements of each actor, passed to Ray.
    timeout : float, default=60
        Seconds after which an actor that does not answer is treated as lost.
    start_timeout : float, default=300
        Seconds for actors to be placed, to read their rows and to compile, at the start and after a loss.
    checkpoint_dir : str, default=None
        Folder of the checkpoints, visible to all actors.
    checkpoint_every : int, default=100
        Iterations between checkpoints.
    resume : bool or "auto", default=False
        Whether to continue from the checkpoint; "auto" continues if there is one.
    restart : bool, default=False
        Whether Ray restarts lost actors, and the group is restored from its checkpoint.
    temp_dir, object_store_memory : default=None
        Settings of a Ray that is started here.
    """

    address: str | None = None
    actors: int | None = None
    num_cpus: float = 1
    resources: dict[str, float] | None = None
    memory: int | None = None
    runtime_env: dict[str, Any] | None = None
    timeout: float = 60.0
    start_timeout: float = 300.0
    checkpoint_dir: str | None = None
    checkpoint_every: int = 100
    resume: bool | str = False
    restart: bool = False
    temp_dir: str | None = None
    object_store_memory: int | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> "RayOptions":
        """Return the options, checked by name and kind; paths are made absolute.

        Raises
        ------
        ValueError
            An option is unknown or has a wrong value; the message says what it must be.
        """
        known = {item.name: item for item in fields(cls)}
        for name in given:
            lookup("option of engine 'ray'", name, known)
        options = cls(**given)
        for names, is_valid, expected in _CHECKS:
            for name in names:
                value = getattr(options, name)
                if not is_valid(value) and (value is not None or known[name].default is not None):
                    raise ValueError(f"engine option {name} must be {expected}, got {value!r}")
        if options.resume and options.checkpoint_dir is None:
            raise ValueError(f"engine option resume={options.resume} needs checkpoint_dir: name the folder of the run")
        if options.temp_dir is not None:
            folder = require_local_path(options.temp_dir, "temp_dir is a folder of this machine")
            options = replace(options, temp_dir=str(folder))
        if options.checkpoint_dir is not None:
            fix = "checkpoints need a folder: set checkpoint_dir to one that all machines mount (NFS, a bucket by FUSE)"
            folder = require_local_path(options.checkpoint_dir, fix).resolve()  # actors run elsewhere
            options = replace(options, checkpoint_dir=str(folder))
        return options

    def decide_resume(self) -> "RayOptions":
        """Return the options with True or False in place of resume="auto"."""
        if self.resume != AUTO or self.checkpoint_dir is None:
            return self
        return replace(self, resume=checkpoints.exists(Path(self.checkpoint_dir)))
