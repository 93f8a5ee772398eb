"""From a node's model document to the model file that `gadget predict` reads, durably.

The same document gives the same bytes at every site. A model of a partition is written beside the model file and never
replaces it.
"""

import math
from pathlib import Path

import numpy as np

from gadget_svm.algorithms import PrivateGradient
from gadget_svm.core.state_file import write_atomically
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.model_file import encode_model
from gadget_svm.peers.storage.snapshot import ModelDocument
from gadget_svm.study.study import Study


def model_path(path: Path, kind: str) -> Path:
    """Return where a model of this kind goes: model.partition.safetensors stands beside model.safetensors."""
    return path.with_suffix(f".partition{path.suffix}") if kind == "partition" else path


def write_model(path: Path, document: ModelDocument, study: Study) -> Path:
    """Write the model file and sync it and its folder; return its path.

    Raises
    ------
    OSError
        The file could not be written; an earlier one is unharmed.
    """
    target = model_path(path, document.kind)
    content = encode_model(as_model(document, study))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, content)
    return target


def as_model(document: ModelDocument, study: Study) -> GadgetSVC:
    """Return a fitted estimator for unscaled features, with the study's names and classes."""
    about, weights = dict(document.metadata), document.weights.reshape(study.outputs, study.width)
    coef = weights[:, : study.n_features] / document.divisor
    # fsum: a BLAS product may round differently on another machine
    moved = [math.fsum(row) for row in coef * document.shift]
    intercept = (weights[:, study.n_features] if study.intercept else np.zeros(study.outputs)) - np.array(moved)
    classes = np.array(study.classes)
    if classes.dtype.kind == "f" and np.array_equal(classes, np.rint(classes)):
        classes = classes.astype(np.int64)
    order = np.argsort(classes)  # as scikit-learn keeps them
    binary = study.outputs == 1
    if binary and order[0] == 1:
        coef, intercept = -coef, -intercept
    elif not binary:
        coef, intercept = coef[order], intercept[order]
    algorithm = PrivateGradient() if study.is_private else study.algorithm
    model = GadgetSVC(n_nodes=1, lam=study.lam, algorithm=algorithm, fit_intercept=study.intercept)
    model.classes_, model.coef_, model.intercept_ = classes[order], coef, intercept
    model.node_coef_ = coef[:1] if binary else coef[None]
    model.node_intercept_ = intercept[:1] if binary else intercept[None]
    model.n_iter_ = int(about.get("ticks", 0))
    model.sites_ = [each[0] for each in about.get("sites", [])] or [about.get("name")]
    model.converged_, model.gap_bound_ = document.kind == "certified", about.get("gap_bound")
    model.output_gap_bounds_ = model.certified_nodes_ = model.stopping_ = model.stopped_by_ = None
    model.lam_, model.tol_, model.multi_class_ = study.lam, study.gap, model.multi_class
    model.certificate_note_ = f"covers {len(model.sites_)} sites, not all of the study" * (document.kind == "partition")
    model.study_ = {"kind": document.kind, **about}
    model.n_features_in_, model.history_ = study.n_features, []
    if study.columns is not None:
        model.feature_names_in_ = np.array(study.columns, dtype=object)
    return model
