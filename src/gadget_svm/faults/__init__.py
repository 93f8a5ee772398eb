"""Faults between nodes, by name or as objects: wrappers of an exchange, which can be combined."""

from gadget_svm.faults.base import Fault, FaultContext
from gadget_svm.faults.links import ActiveEdges, Bounce, Delay, Loss, Partition
from gadget_svm.faults.nodes import Asynchronous, Churn, Crash, Flapping, Slow
from gadget_svm.faults.poison import Constant, FalseCounts, LittleIsEnough, Poison, SignFlip, Zeros, flip_labels
from gadget_svm.faults.registry import FAULTS, make_faults, wrap_all

__all__ = [
    "FAULTS", "ActiveEdges", "Asynchronous", "Bounce", "Churn", "Constant", "Crash", "Delay", "FalseCounts", "Fault",
    "FaultContext", "Flapping", "LittleIsEnough", "Loss", "Partition", "Poison", "SignFlip", "Slow", "Zeros",
    "flip_labels", "make_faults", "wrap_all",
]  # fmt: skip
