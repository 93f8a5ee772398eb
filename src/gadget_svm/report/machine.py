"""The machine that figures were measured on, in one line."""

import os
import platform
from pathlib import Path


def machine() -> str:
    """Return CPU, cores, memory, and the version of Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_cpu()}, {cores} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def _cpu() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
