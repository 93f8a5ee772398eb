"""
Three peers on one machine
==========================

Three processes learn together over gRPC with certificates. One of them is killed and starts again. All of them end with
the same certified model.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from gadget_svm import load_model

if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp()) / "peers"
    demo = [sys.executable, "-m", "gadget_svm", "peer", "demo", "--peers", "3", "--chaos", "--out", str(folder)]
    subprocess.run(demo, check=True)
    model = load_model(folder / "peer-1" / "model.safetensors")
    print(f"gap at most {model.gap_bound_:.2%}, sites {model.sites_}")
