"""Real peers: one process a site, one node each, over mTLS. Needs the extra: pip install 'gadget-svm[peer]'.

`simulate` runs the same nodes in a simulated network.
"""

import os
from importlib import import_module
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # connections come and go, ports are taken: our own log says so


__all__ = ["simulate"]


def __getattr__(name: str) -> Any:
    if name != "simulate":
        raise AttributeError(f"module 'gadget_svm.peers' has no attribute {name!r}")
    return import_module("gadget_svm.peers.world").simulate
