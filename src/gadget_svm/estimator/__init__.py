"""The scikit-learn face: `GadgetSVC` and model files."""

from gadget_svm.estimator.files import load_model, save_model
from gadget_svm.estimator.svc import GadgetSVC

__all__ = ["GadgetSVC", "load_model", "save_model"]
