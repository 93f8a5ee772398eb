"""Where nodes run. A runtime supplies one function, `exchange`, and drives the algorithm with it."""

from gadget_svm.runtimes.local import LocalRuntime
from gadget_svm.runtimes.training import Outcome, train

__all__ = ["LocalRuntime", "Outcome", "train"]
