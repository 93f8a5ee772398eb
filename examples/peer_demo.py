"""
Three peers on one machine
==========================

Three processes learn together over gRPC with certificates. One of them is killed and starts again. All of them end with
the same certified model.
"""

import tempfile
from pathlib import Path

from gadget_svm import load_model
from gadget_svm.cli.peer_demo import PeerDemoRequest, run_demo

if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp()) / "peers"
    run_demo(PeerDemoRequest(peers=3, data="digits", out=folder, chaos=True))
    model = load_model(folder / "peer-1" / "model.safetensors")
    print(f"gap at most {model.gap_bound_:.2%}, sites {model.sites_}")
