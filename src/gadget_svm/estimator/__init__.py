"""`GadgetSVC` and model files, imported on use, so that actors that read shards do not need scikit-learn."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gadget_svm.estimator.model_file import load_model, save_model
    from gadget_svm.estimator.svc import GadgetSVC

__all__ = ["GadgetSVC", "load_model", "save_model"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'gadget_svm.estimator' has no attribute {name!r}")
    return getattr(import_module(f"gadget_svm.estimator.{'svc' if name == 'GadgetSVC' else 'model_file'}"), name)
