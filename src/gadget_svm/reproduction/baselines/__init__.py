"""The systems that GADGET is compared with, by name. A new one is a file here and a line in `BASELINES`.

Local-only nodes have no entry of their own: they are "pegasos", fitted on each node's shard.
"""

from collections.abc import Callable

from gadget_svm.reproduction.baselines.authors_program import AuthorsProgram
from gadget_svm.reproduction.baselines.base import Baseline, Fit
from gadget_svm.reproduction.baselines.liblinear import Liblinear
from gadget_svm.reproduction.baselines.optimum import Optimum, certified_optimum
from gadget_svm.reproduction.baselines.pegasos import Pegasos
from gadget_svm.reproduction.baselines.perf import SvmPerf
from gadget_svm.reproduction.baselines.sgd import SvmSgd

__all__ = [
    "BASELINES", "AuthorsProgram", "Baseline", "Fit", "Liblinear", "Optimum", "Pegasos", "SvmPerf", "SvmSgd",
    "certified_optimum",
]  # fmt: skip

BASELINES: dict[str, Callable[[], Baseline]] = {
    "pegasos": Pegasos,
    "svm-sgd": SvmSgd,
    "svm-perf": SvmPerf,
    "liblinear": Liblinear,
    "authors-program": AuthorsProgram,
}
