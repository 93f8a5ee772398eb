"""Writes and reads model files by path or URI. They are state files of the kind "model"; no code in them is run."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gadget_svm.algorithms import ALGORITHMS
from gadget_svm.core.lookup import lookup
from gadget_svm.core.state_file import StateFileError, encode_state, read_state
from gadget_svm.data.uris import local_copy, parse_location, write_file
from gadget_svm.estimator.svc import GadgetSVC
from gadget_svm.privacy import DifferentialPrivacy

KIND, VERSION = "model", 2
PLAIN = bool | int | float | str
"""The types of values that JSON can hold, apart from lists, objects and null."""
ARRAYS = ("coef_", "intercept_", "node_coef_", "node_intercept_")
OPTIONAL_ARRAYS = ("output_gap_bounds_", "certified_nodes_")
SCALARS = (
    "n_iter_", "converged_", "gap_bound_", "lam_", "stopping_", "tol_", "stopped_by_", "multi_class_",
    "certificate_note_",
)  # fmt: skip


def save_model(model: GadgetSVC, path: str | Path) -> Path | str:
    """Write the models of all nodes and their average to one file.

    Parameters
    ----------
    model : GadgetSVC
        A fitted model. Its state for `partial_fit`, its history, its graph and its observers are not saved.
    path : str or Path
        A path or URI (s3://...). A local file is replaced only once the new one is complete.

    Returns
    -------
    place : Path or str
        Where the file is.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from gadget_svm import GadgetSVC, load_model, save_model
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [0.0, 2.0]], ["a", "b", "b", "a"]
    >>> model = GadgetSVC(2, lam=0.1, random_state=0).fit(X, y)
    >>> place = save_model(model, mkdtemp() + "/model.safetensors")
    >>> load_model(place).predict([[3.0, 0.0]]).tolist()
    ['b']
    """
    target = parse_location(path)
    write_file(target, encode_model(model))
    return target


def encode_model(model: GadgetSVC) -> bytes:
    """Return the bytes of a model file; the same model gives the same bytes."""
    check_is_fitted(model)
    arrays = {name: getattr(model, name) for name in (*ARRAYS, *OPTIONAL_ARRAYS)}
    classes, kind = model.classes_, type(model.algorithm)
    known = _kinds().get(kind.__name__) is kind
    about = {
        **{name: _plain(getattr(model, name)) for name in SCALARS},
        "classes": classes.tolist(),
        "classes_dtype": "str" if classes.dtype.kind in "OUS" else str(classes.dtype),
        "sites": [_label(site) for site in model.sites_],
        "feature_names": [str(name) for name in model.__dict__.get("feature_names_in_", [])],
        "params": _plain_params(model),
        "algorithm": {"kind": kind.__name__, "params": _plain_params(model.algorithm)} if known else None,
    }
    if model.privacy is not None:
        about["privacy"] = {"budget": asdict(model.privacy), "spent": model.privacy_}
    if "study_" in model.__dict__:
        about["study"] = model.study_
    present = {name: np.asarray(value) for name, value in arrays.items() if value is not None}
    return encode_state(KIND, VERSION, present, about)


def load_model(path: str | Path) -> GadgetSVC:
    """Read a model file.

    Parameters
    ----------
    path : str or Path
        A path or URI, as in `save_model`.

    Returns
    -------
    model : GadgetSVC
        It predicts, and `GadgetSVC.node` gives the models of single nodes; it cannot be trained further.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        The file is damaged, of an older format, or not a model file.

    Examples
    --------
    See `save_model`.
    """
    place = parse_location(path)
    if isinstance(place, Path) and not place.is_file():
        raise FileNotFoundError(f"no model file {place}: train one with 'gadget train DATA --out DIR'")
    with local_copy(place) as source:
        try:
            arrays, about = read_state(source, KIND, VERSION)
            return _restored(arrays, about)
        except StateFileError as error:
            fix = "copy it again, or train the model again if an older version of this program wrote it"
            raise ValueError(f"{error}: {fix}") from error
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"{source} lacks a part of its description ({error!r}): train the model again") from error


def _restored(arrays: dict[str, Any], about: dict[str, Any]) -> GadgetSVC:
    model = GadgetSVC(**about["params"])
    if about["algorithm"] is not None:
        kind = lookup("algorithm in the model file", about["algorithm"]["kind"], _kinds())
        model.set_params(algorithm=kind(**about["algorithm"]["params"]))
    privacy = about.get("privacy")
    model.privacy = None if privacy is None else DifferentialPrivacy(**privacy["budget"])
    model.privacy_ = None if privacy is None else privacy["spent"]
    given = {name: arrays[name] for name in ARRAYS} | {name: arrays.get(name) for name in OPTIONAL_ARRAYS}
    model.__dict__.update(given | {name: about[name] for name in SCALARS})
    model.classes_ = np.array(about["classes"], dtype=about["classes_dtype"])
    model.sites_ = [_hashable(site) for site in about["sites"]]
    model.n_features_in_, model.history_ = model.coef_.shape[1], []
    if "study" in about:  # a peer's file: all sites have the same model, which is in it once
        model.study_ = about["study"]
        for name in ("node_coef_", "node_intercept_"):
            values = getattr(model, name)
            setattr(model, name, np.broadcast_to(values[:1], (max(len(model.sites_), 1), *values.shape[1:])))
    if about["feature_names"]:
        model.feature_names_in_ = np.array(about["feature_names"], dtype=object)
    return model


def _kinds() -> dict[str, Any]:
    """Return the classes of known algorithms by name. A model file can name no other code."""
    kinds = {}
    for name in ALGORITHMS:
        with suppress(ImportError):  # a package that is missing; a file that names its class is refused
            kind = ALGORITHMS[name]
            if isinstance(kind, type):
                kinds[kind.__name__] = kind
    return kinds


def _plain_params(part: Any) -> dict[str, Any]:
    """Return the parameters that JSON can hold. A graph, a rule or observers given as objects are left out."""
    params = {name: _plain(value) for name, value in part.get_params(deep=False).items()}
    return {name: value for name, value in params.items() if value is None or isinstance(value, PLAIN)}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _label(site: Any) -> Any:
    """Return a node's label as JSON can hold it: a tuple becomes a list, other objects become text."""
    if isinstance(site, tuple):
        return [_label(part) for part in site]
    value = _plain(site)
    return value if isinstance(value, PLAIN) else str(value)


def _hashable(site: Any) -> Any:
    return tuple(_hashable(part) for part in site) if isinstance(site, list) else site
