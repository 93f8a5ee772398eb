"""What can go wrong between nodes: composable wrappers of an exchange, by name or as objects."""

from gadget_svm.faults.base import Fault, FaultContext
from gadget_svm.faults.links import ActiveEdges, Bounce, Delay, Loss, Partition
from gadget_svm.faults.nodes import Asynchronous, Churn, Crash, Slow
from gadget_svm.faults.registry import FAULTS, make_faults, wrap_all

__all__ = [
    "FAULTS", "ActiveEdges", "Asynchronous", "Bounce", "Churn", "Crash", "Delay", "Fault", "FaultContext", "Loss",
    "Partition", "Slow", "make_faults", "wrap_all",
]  # fmt: skip
