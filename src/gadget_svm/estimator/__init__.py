"""The scikit-learn face: `GadgetSVC`, the model of one node, and model files."""

from gadget_svm.estimator.files import load_model, save_model
from gadget_svm.estimator.svc import GadgetSVC, NodeModel

__all__ = ["GadgetSVC", "NodeModel", "load_model", "save_model"]
