"""Peak memory of training on the CCAT subset, above the size of the process after its imports."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common import named, publish

NODES = 10
CHILD = """
import json, sys
from pathlib import Path
import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
import warnings
from gadget_svm import GadgetSVC

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024

warnings.simplefilter("ignore", ConvergenceWarning)
nodes, lam = int(sys.argv[2]), float(sys.argv[3])
after_imports = status("VmRSS")
with np.load(sys.argv[1]) as file:
    X = sp.csr_matrix((file["data"], file["indices"], file["indptr"]), shape=file["shape"])
    y = file["y"]
model = GadgetSVC(n_nodes=nodes, lam=lam, algorithm="gadget", fit_intercept=False, max_iter=300, random_state=0)
model.fit(X, y)
print(json.dumps({"after_imports": after_imports, "peak": status("VmHWM")}))
"""


def main(quick: bool = False) -> None:
    """Measure in a fresh process with warm kernel caches; the budget is 3 CSR sizes plus 12 vectors a node."""
    X, y, lam, note = named("ccat")
    csr = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        np.savez(file, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)
        measured = [_child(file, lam) for _ in range(2)][-1]  # the first one warms the kernel caches
    used = measured["peak"] - measured["after_imports"]
    budget = 3 * csr + 12 * NODES * X.shape[1] * 8
    lines = [
        f"{note}: {X.shape[0]} x {X.shape[1]}, {X.nnz} non-zeros; {NODES} nodes; kernel caches warm.", "",
        "| | MiB |", "|---|---|",
        f"| process after imports | {measured['after_imports'] / 2**20:.1f} |",
        f"| CSR data | {csr / 2**20:.1f} |",
        f"| peak above imports, data included | {used / 2**20:.1f} |",
        f"| budget: 3 x CSR + 12 vectors a node | {budget / 2**20:.1f} |",
        f"| ratio to the budget | {used / budget:.2f} |",
    ]  # fmt: skip
    publish("memory", "Peak memory of training", lines, {**measured, "csr": csr, "used": used, "budget": budget},
            quick)  # fmt: skip


def _child(file: Path, lam: float) -> dict[str, int]:
    command = [sys.executable, "-c", CHILD, str(file), str(NODES), repr(lam)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(answer.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
