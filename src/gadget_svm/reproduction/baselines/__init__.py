"""The systems that GADGET is compared with, by name. A new one is a file here and a line in `BASELINES`.

Local-only nodes have no entry of their own: they are "pegasos", fitted on each node's shard.
"""

from collections.abc import Callable
from typing import Any

from gadget_svm.core.lookup import lookup
from gadget_svm.reproduction.baselines.authors_program import AuthorsProgram
from gadget_svm.reproduction.baselines.base import Baseline, Evaluator, Fit, Point
from gadget_svm.reproduction.baselines.liblinear import Liblinear
from gadget_svm.reproduction.baselines.optimum import Optimum, certified_optimum
from gadget_svm.reproduction.baselines.pegasos import Pegasos
from gadget_svm.reproduction.baselines.perf import SvmPerf
from gadget_svm.reproduction.baselines.sgd import SvmSgd

__all__ = [
    "BASELINES", "AuthorsProgram", "Baseline", "Evaluator", "Fit", "Liblinear", "Optimum", "Pegasos", "Point",
    "SvmPerf", "SvmSgd", "certified_optimum", "make_baseline",
]  # fmt: skip

BASELINES: dict[str, Callable[..., Baseline]] = {
    "pegasos": Pegasos,
    "svm-sgd": SvmSgd,
    "svm-perf": SvmPerf,
    "liblinear": Liblinear,
    "authors-program": AuthorsProgram,
}


def make_baseline(name: str, **parameters: Any) -> Baseline:
    """Return the baseline of this name, with its own defaults for what is not given."""
    return lookup("baseline", name, BASELINES)(**parameters)
