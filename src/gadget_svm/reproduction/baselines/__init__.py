"""The systems that GADGET is compared with, a function each: it trains on rows in one place and returns a `Fit`.

A node on its own ("local-only") is `pegasos` on the node's shard.
"""

from gadget_svm.reproduction.baselines.base import Fit
from gadget_svm.reproduction.baselines.optimum import Optimum, certified_optimum
from gadget_svm.reproduction.baselines.pegasos import authors_program, pegasos
from gadget_svm.reproduction.baselines.perf import svm_perf
from gadget_svm.reproduction.baselines.scikit_learn import liblinear, svm_sgd

__all__ = [
    "Fit", "Optimum", "authors_program", "certified_optimum", "liblinear", "pegasos", "svm_perf", "svm_sgd",
]  # fmt: skip
