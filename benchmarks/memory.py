"""Peak memory of training on the CCAT subset, above the size of the process after its imports."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from benchmarks.common import Table, named, publish_tables, ratio
from benchmarks.fresh import in_fresh_process
from benchmarks.paper_scale import load_rows, save_rows
from gadget_svm import GadgetSVC

NODES = 10


def main(quick: bool = False) -> None:
    """Measure in a fresh process with warm kernel caches; the budget is 3 CSR sizes plus 12 vectors a node."""
    X, y, lam, note = named("ccat")
    csr = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    with tempfile.TemporaryDirectory() as folder:
        save_rows(Path(folder), X, y)
        measured = [in_fresh_process("benchmarks.memory:train", folder=folder, lam=lam) for _ in range(2)][-1]
    budget = 3 * csr + 12 * NODES * X.shape[1] * 8
    table = Table(["what", "MiB", "ratio to the budget"])
    for what, size in (
        ("process after imports", measured["after_imports"]), ("CSR data", csr),
        ("peak above imports, data included", measured["used"]), ("budget: 3 x CSR + 12 vectors a node", budget),
    ):  # fmt: skip
        table.add(what, size / 2**20, None if what.startswith("process") else ratio(size, budget))
    notes = [f"{note}: {X.shape[0]} x {X.shape[1]}, {X.nnz} non-zeros; {NODES} nodes; kernel caches warm."]
    publish_tables("memory", "Peak memory of training", notes, [table], None, quick)


def train(folder: str, lam: float) -> dict[str, Any]:
    """Train, in a process of its own; the first one warms the kernel caches."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    model = GadgetSVC(n_nodes=NODES, lam=lam, algorithm="gadget", fit_intercept=False, max_iter=300, random_state=0)
    model.fit(*load_rows(folder))
    return {}


if __name__ == "__main__":
    main()
