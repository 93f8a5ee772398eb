"""The simulator, the training loop, stopping rules and observers."""

from gadget_svm.simulation.engine import LocalRuntime
from gadget_svm.simulation.trainer import Outcome, train

__all__ = ["LocalRuntime", "Outcome", "train"]
