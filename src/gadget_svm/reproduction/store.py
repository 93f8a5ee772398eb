"""Finished results on disk, one JSON file each, named by everything that determines them.

An interrupted run reuses its finished results. Other data, settings or code have another key, so the result is computed
again.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from gadget_svm.core.state_file import write_atomically

Result = dict[str, Any]
SOURCES = (
    "kernels/*.py", "gossip/*.py", "algorithms/*.py", "core/*.py", "faults/*.py", "topologies/*.py",
    "simulation/engine.py", "data/partition.py", "reproduction/baselines/*.py", "reproduction/methods.py",
    "reproduction/trials.py", "reproduction/network_study.py",
)  # fmt: skip
"""The modules that determine a result."""


def stored(folder: Path, key: dict[str, Any], compute: Callable[[], Result]) -> Result:
    """Return the result stored under ``key``, or compute and store it. A damaged file counts as missing."""
    text = json.dumps(key, sort_keys=True)
    path = folder / f"{key['method']}-{key['data']}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        found = json.loads(path.read_text())
        if found["key"] == json.loads(text) and found["result"]:
            return dict(found["result"])
    result = compute()
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({"key": key, "result": result}).encode())
    return dict(json.loads(json.dumps(result)))  # as it will be read the next time


@cache
def code_digest() -> str:
    """Return a digest of the modules that determine results, in twelve digits."""
    package = Path(__file__).parent.parent
    files = sorted(path for pattern in SOURCES for path in package.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
