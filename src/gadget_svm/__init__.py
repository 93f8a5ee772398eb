"""GADGET SVM: linear support vector machines learned by gossip. Public names are imported on use.

Examples
--------
>>> from gadget_svm import GadgetSVC, load_dataset
>>> data = load_dataset("digits")
>>> model = GadgetSVC(n_nodes=5, lam=1e-2, random_state=0).fit(data.X, data.y == 0)
>>> model.converged_
True
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "gadget_svm.estimator": ("GadgetSVC", "load_model", "save_model"),
    "gadget_svm.privacy": ("DifferentialPrivacy",),
    "gadget_svm.algorithms": ("Gadget", "Pdmm", "BaseAlgorithm", "BaseRun"),
    "gadget_svm.simulation.runtime": ("Observer", "NodeRecords"),
    "gadget_svm.simulation.stopping": ("BaseStoppingRule",),
    "gadget_svm.data": ("load_dataset",),
    "gadget_svm.data.partition": ("assign_sites",),
    "gadget_svm.topologies": ("build_network",),
    "gadget_svm.gossip": ("average",),
    "gadget_svm": ("theory", "faults"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gadget_svm' has no attribute {name!r}")
    home = _HOMES[name]
    if home == "gadget_svm":
        return import_module(f"gadget_svm.{name}")
    return getattr(import_module(home), "build" if name == "build_network" else name)
