"""Finished pieces of an experiment on disk, one JSON file each, named by everything that determines them.

An interrupted run finds what it had; a change of data, settings or version finds nothing and computes anew.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Result = dict[str, Any]
SOURCES = (
    "kernels/*.py", "gossip/*.py", "algorithms/*.py", "runtimes/local.py", "faults/*.py", "block.py", "mail.py",
    "rows.py", "network.py", "objective.py", "data/partition.py", "topologies/*.py", "experiments/baselines/*.py",
    "experiments/methods.py", "experiments/trials.py", "experiments/network_study.py", "experiments/loading.py",
)  # fmt: skip


@dataclass(frozen=True)
class Store:
    """Cells in a folder."""

    folder: Path

    def cell(self, key: dict[str, Any], compute: Callable[[], Result]) -> Result:
        """The result kept under ``key``, or computed and kept. A half-written or damaged file counts as none."""
        text = json.dumps(key, sort_keys=True)
        path = self.folder / f"{key['method']}-{key['data']}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        kept = _read(path)
        if kept is not None and kept.get("key") == json.loads(text):
            return dict(kept["result"])
        result = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps({"key": key, "result": result}))
        part.replace(path)
        return dict(json.loads(json.dumps(result)))  # as it will be read the next time


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None
    whole = isinstance(content, dict) and isinstance(content.get("result"), dict) and content["result"]
    return content if whole else None


@cache
def code_stamp() -> str:
    """What the code that makes results says, in twelve digits: a change of it computes anew."""
    package = Path(__file__).parent.parent
    files = sorted(path for pattern in SOURCES for path in package.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
