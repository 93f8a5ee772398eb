"""Digests of models and histories of many small runs, to show that a change of the code changes no result.

`python -m benchmarks.same_bits digests.json` writes them, `python -m benchmarks.same_bits --compare digests.json` says
which runs differ from those written before. They depend on the model of the CPU and on the versions of the libraries,
so both have to be made on one machine.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp

from benchmarks.common import say
from gadget_svm import Gadget, GadgetSVC, load_model, save_model
from gadget_svm.algorithms import ALGORITHMS, AveragedSgd, Pdmm
from gadget_svm.gossip import PROTOCOLS
from gadget_svm.topologies.registry import TOPOLOGIES

MODEL = ("coef_", "intercept_", "node_coef_", "node_intercept_", "n_iter_", "converged_", "gap_bound_")
CLOCKS = ("seconds",)
"""What of a record depends on the clock."""
Run = Callable[[], GadgetSVC]


def main() -> int:
    """Write digests, or compare with those written before."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_bits", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--compare", action="store_true", help="say which runs differ from the file")
    parser.add_argument("--no-ray", action="store_true", help="leave out the runs on Ray, which take longest")
    order = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, run in (*local_runs(Path(folder)), *(() if order.no_ray else ray_runs())):
            say(name)
            found[name] = digests(run())
    if not order.compare:
        order.file.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    known = json.loads(order.file.read_text())
    other = [name for name in found if found[name] != known.get(name)]
    for name in other:
        parts = [part for part in found[name] if found[name][part] != known.get(name, {}).get(part)]
        print(f"{name}: {', '.join(parts)}" if name in known else f"{name}: not in {order.file}")
    print(f"{len(found) - len(other)} of {len(found)} runs are the same bit for bit")
    return 1 if other else 0


def digests(model: GadgetSVC) -> dict[str, str]:
    """Of every attribute of the model, and of every column of the history."""
    found = {name: digest(getattr(model, name)) for name in MODEL}
    for name in sorted({name for record in model.history_ for name in record}.difference(CLOCKS)):
        found[f"history: {name}"] = digest([record.get(name) for record in model.history_])
    return found


def digest(value: Any) -> str:
    """A few letters that depend on every bit."""
    array = np.asarray(value)
    content = repr(value).encode() if array.dtype == object else repr(array.shape).encode() + array.tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def rows(n_classes: int = 2) -> tuple[Any, Any]:
    """240 rows of 12 features that no plane separates."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 12)) * np.linspace(0.3, 2.0, 12)
    score = X @ rng.normal(size=12) + 1.5 * rng.normal(size=240)
    return X, np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))


def local_runs(folder: Path) -> Iterator[tuple[str, Run]]:
    """Runs in this process, each with its name."""
    (X, y), (_, three) = rows(), rows(3)
    sparse, weight, sites = sp.csr_matrix(X * (np.abs(X) > 0.8)), np.linspace(0.2, 3.0, 240), np.arange(240) % 7

    def fit(X: Any = X, y: Any = y, sample_weight: Any = None, sites: Any = None, **settings: Any) -> Run:
        settings = {
            "n_nodes": None if sites is not None else 9,
            "lam": 0.01,
            "max_iter": 40,
            "random_state": 0,
            **settings,
        }
        return lambda: GadgetSVC(**settings).fit(X, y, sample_weight=sample_weight, sites=sites)

    for algorithm in ALGORITHMS:
        yield f"algorithm {algorithm}", fit(algorithm=algorithm)
        yield f"algorithm {algorithm}, three classes", fit(y=three, algorithm=algorithm)
        yield f"algorithm {algorithm}, sparse, no intercept", fit(sparse, algorithm=algorithm, fit_intercept=False)
        yield f"algorithm {algorithm}, weights", fit(sample_weight=weight, algorithm=algorithm, class_weight="balanced")
        yield f"algorithm {algorithm}, sites, every record", fit(sites=sites, algorithm=algorithm, record_every=1)
    for gossip in PROTOCOLS:
        for persist in ({}, {"gossip_rounds": 3}, {"gossip_rounds": "mix"}):
            if not (gossip == "running-sum" and persist):
                yield f"gossip {gossip}, {persist}", fit(algorithm=Gadget(gossip=gossip, **persist), max_iter=15)
    yield "local steps, batches, implicit", fit(algorithm=Gadget(local_steps=4, batch_size=3, solver="implicit"))
    yield "PDMM, one penalty", fit(algorithm=Pdmm(penalty=2.0, neighbours=1))
    yield "averaged SGD", fit(algorithm=AveragedSgd())
    for topology in TOPOLOGIES:
        nodes = {"hypercube": 8}.get(topology, 9)
        yield f"topology {topology}", fit(topology=topology, n_nodes=nodes)
        yield f"topology {topology}, gadget", fit(topology=topology, n_nodes=nodes, algorithm="gadget")
    yield (
        "a graph of sites",
        fit(sites=np.array(list("abcde"))[np.arange(240) % 5], topology=nx.star_graph(list("dabce"))),
    )
    for fault in ("loss=0.2", "bounce=0.2", "delay=3", "crash", "churn", "partition", "slow=3", "async=0.3"):
        for algorithm in ("pdmm", "gadget"):
            yield f"fault {fault}, {algorithm}", fit(faults=fault, algorithm=algorithm, stopping=None)
    yield (
        "faults together, blocks",
        fit(faults=["loss=0.1", "delay=2", "churn"], engine_options={"blocks": 3}, stopping=None),
    )
    for stopping, algorithm in (("gap", "pdmm"), ("weights", "gadget"), ("average", "gadget"), ("objective", "gadget")):
        yield f"stopping {stopping}", fit(stopping=stopping, algorithm=algorithm, max_iter=400)
    yield "one against one", fit(y=three, multi_class="ovo")
    yield "C", fit(lam=1e-4, C=0.5)
    yield "one node", fit(n_nodes=1)
    yield "partial_fit", lambda: _in_batches(X, y, "auto")
    yield "partial_fit, pdmm", lambda: _in_batches(X, y, "pdmm")
    for ending in ("svm", "csv", "npz", "parquet"):
        yield f"shards, {ending}", lambda ending=ending: _from_files(folder, ending, X, y)
    yield "model file", lambda: _saved(folder, fit()())


def ray_runs() -> Iterator[tuple[str, Run]]:
    """Runs on a Ray of our own."""
    X, three = rows(3)
    settings = {"n_nodes": 9, "lam": 0.01, "max_iter": 40, "random_state": 0, "engine": "ray"}
    options = {"address": "local", "actors": 2}
    for algorithm in ("auto", "gadget"):
        yield (
            f"Ray, {algorithm}",
            lambda algorithm=algorithm: GadgetSVC(algorithm=algorithm, engine_options=options, **settings).fit(
                X, three
            ),
        )


def _in_batches(X: Any, y: Any, algorithm: str) -> GadgetSVC:
    model = GadgetSVC(5, algorithm=algorithm, lam=0.01, random_state=0)
    for some in np.array_split(np.arange(len(y)), 4):
        model.partial_fit(X[some], y[some], classes=[0, 1])
    return model


def _from_files(folder: Path, ending: str, X: Any, y: Any) -> GadgetSVC:
    from sklearn.datasets import dump_svmlight_file

    names = []
    for i, some in enumerate(np.array_split(np.arange(len(y)), 4)):
        names.append(folder / f"part-{i}.{ending}")
        if ending == "svm":
            dump_svmlight_file(X[some], y[some], str(names[-1]), zero_based=False)
        elif ending == "npz":
            np.savez(names[-1], X=X[some], y=y[some])
        else:
            import pandas as pd

            table = pd.DataFrame(X[some], columns=[f"x{j}" for j in range(X.shape[1])]).assign(label=y[some])
            table.to_csv(names[-1], index=False) if ending == "csv" else table.to_parquet(names[-1])
    return GadgetSVC(lam=0.01, max_iter=40, random_state=0).fit_shards([str(name) for name in names])


def _saved(folder: Path, model: GadgetSVC) -> GadgetSVC:
    return load_model(save_model(model, folder / "model.safetensors"))


if __name__ == "__main__":
    sys.exit(main())
