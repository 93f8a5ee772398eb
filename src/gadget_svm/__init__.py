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

_HOMES = {
    "GadgetSVC": "gadget_svm.estimator",
    "load_model": "gadget_svm.estimator",
    "save_model": "gadget_svm.estimator",
    "Gadget": "gadget_svm.algorithms",
    "Pdmm": "gadget_svm.algorithms",
    "DifferentialPrivacy": "gadget_svm.privacy",
    "BaseAlgorithm": "gadget_svm.algorithms",
    "BaseRun": "gadget_svm.algorithms",
    "Observer": "gadget_svm.simulation.runtime",
    "NodeRecords": "gadget_svm.simulation.runtime",
    "BaseStoppingRule": "gadget_svm.simulation.stopping",
    "load_dataset": "gadget_svm.data",
    "assign_sites": "gadget_svm.data.partition",
    "build_network": "gadget_svm.topologies",
    "average": "gadget_svm.gossip",
    "theory": "gadget_svm",
    "faults": "gadget_svm",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gadget_svm' has no attribute {name!r}")
    home = _HOMES[name]
    if home == "gadget_svm":
        return import_module(f"gadget_svm.{name}")
    return getattr(import_module(home), "build" if name == "build_network" else name)
