"""Where nodes run. A runtime supplies one function, `exchange`, and drives the algorithm with it."""

from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.simulation.trainer import Outcome, train

__all__ = ["LocalRuntime", "Outcome", "train"]
