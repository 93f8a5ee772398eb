"""The machine that figures were measured on, in one line."""

import os
import platform
from pathlib import Path

from gadget_svm.kernels.threads import available_cores


def machine() -> str:
    """Return CPU, cores, memory, and the version of Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_cpu()}, {available_cores()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def _cpu() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
