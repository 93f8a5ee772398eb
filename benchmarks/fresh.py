"""A function called in a process of its own, so that memory can be told from that of others and of the imports."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def status(key: str) -> int:
    """Bytes that the system counts for this process: VmRSS is now, VmHWM the most so far; 0 where it does not say."""
    about = Path("/proc/self/status")
    lines = about.read_text().splitlines() if about.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)


def in_fresh_process(function: str, **arguments: Any) -> dict[str, Any]:
    """What ``module:function`` returns, with ``used``: its peak memory above the imports, in bytes.

    A function that goes on with something else after what is to be measured gives ``peak`` itself.
    """
    command = [sys.executable, "-m", "benchmarks.fresh", function, json.dumps(arguments)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    if answer.returncode:
        raise RuntimeError(f"{function}({arguments}) failed in a process of its own:\n{answer.stderr[-2000:]}")
    return dict(json.loads(answer.stdout.splitlines()[-1]))


def _answer(function: str, arguments: str) -> None:
    module, _, name = function.partition(":")
    work = getattr(importlib.import_module(module), name)
    after_imports = status("VmRSS")
    result = work(**json.loads(arguments))
    peak = result.pop("peak", None) or status("VmHWM")
    print(json.dumps({**result, "after_imports": after_imports, "used": max(0, peak - after_imports)}))


if __name__ == "__main__":
    _answer(*sys.argv[1:])
