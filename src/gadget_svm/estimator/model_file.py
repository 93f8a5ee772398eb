"""Model files: safetensors with JSON metadata. Nothing in them is ever executed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gadget_svm.algorithms import Auto, AveragedSgd, Gadget, MomDsvm, Pdmm, TwoPushSum
from gadget_svm.core.lookup import lookup
from gadget_svm.data.uris import local_copy, parse_location, write_file
from gadget_svm.estimator.svc import GadgetSVC

KINDS = {kind.__name__: kind for kind in (Auto, AveragedSgd, Gadget, MomDsvm, Pdmm, TwoPushSum)}
FORMAT = "gadget-svm/1"
ARRAYS = ("coef_", "intercept_", "node_coef_", "node_intercept_")


def save_model(model: GadgetSVC, path: str | Path) -> Path | str:
    """Write every node's model and the average to one file, by path or URI (s3://...), and return where it is.

    A half-written local file never replaces a good one.
    """
    from safetensors.numpy import save

    check_is_fitted(model)
    target = parse_location(path)
    tensors = {name: np.ascontiguousarray(getattr(model, name)) for name in ARRAYS}
    classes = model.classes_
    about = {
        "format": FORMAT,
        "classes": classes.tolist(),
        "classes_dtype": "str" if classes.dtype.kind in "OUS" else str(classes.dtype),
        "n_iter": int(model.n_iter_),
        "converged": bool(model.converged_),
        "gap_bound": model.gap_bound_,
        "output_gap_bounds": None if model.output_gap_bounds_ is None else _finite(model.output_gap_bounds_),
        "lam": model.lam_,
        "stopping": model.stopping_,
        "stopped_by": model.stopped_by_,
        "remark": getattr(model, "remark_", ""),  # models of peers have none
        "multi_class": model.multi_class_,
        "certified_nodes": None if model.certified_nodes_ is None else model.certified_nodes_.tolist(),
        "sites": [_label(site) for site in model.sites_],
        "feature_names": [str(name) for name in getattr(model, "feature_names_in_", [])],
        "parameters": {key: value for key, value in model.get_params(deep=False).items() if _plain(value)},
        "algorithm": _settings(model.algorithm),
    }
    write_file(target, save(tensors, metadata={"gadget": json.dumps(about, default=_scalar)}))
    return target


def load_model(path: str | Path) -> GadgetSVC:
    """Read a model file, by path or URI; a damaged or foreign one is a ValueError that says so."""
    place = parse_location(path)
    if isinstance(place, Path) and not place.is_file():
        raise FileNotFoundError(f"no model file {place}: train one with 'gadget train DATA --out DIR'")
    with local_copy(place) as source:
        return _load(source)


def _load(source: Path) -> GadgetSVC:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(source, framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("gadget", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise ValueError(
            f"{source} is truncated, damaged or not a model file ({error}): copy or train it again"
        ) from error
    written = about.get("format") if isinstance(about, dict) else None
    if written != FORMAT or set(tensors) != set(ARRAYS):
        raise ValueError(f"{source} is not a model of this program (format {written!r}, expected {FORMAT!r})")
    try:
        return _revive(about, tensors)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{source} lacks a part of its description ({error!r}): copy or train it again") from error


def _revive(about: dict[str, Any], tensors: dict[str, Any]) -> GadgetSVC:
    known = GadgetSVC().get_params(deep=False)
    model = GadgetSVC(**{key: value for key, value in about["parameters"].items() if key in known})
    if about.get("algorithm"):
        kind = lookup("algorithm in the model file", about["algorithm"]["kind"], KINDS)
        model.set_params(algorithm=kind(**about["algorithm"]["settings"]))
    for name, value in tensors.items():
        setattr(model, name, value)
    model.classes_ = np.array(
        about["classes"], dtype=None if about["classes_dtype"] == "str" else about["classes_dtype"]
    )
    model.n_iter_, model.converged_, model.sites_ = (
        about["n_iter"], about["converged"], [_hashable(site) for site in about["sites"]],
    )  # fmt: skip
    model.multi_class_ = about.get("multi_class", "ovr")
    model.gap_bound_ = about.get("gap_bound")  # files of before certificates have none
    bounds = about.get("output_gap_bounds")
    model.output_gap_bounds_ = None if bounds is None else np.array([np.inf if b is None else b for b in bounds])
    model.lam_ = about.get("lam", model.lam if model.C is None else None)  # older files do not say how it ended
    model.stopping_, model.stopped_by_ = about.get("stopping"), about.get("stopped_by")
    model.remark_ = about.get("remark", "")
    covered = about.get("certified_nodes")
    model.certified_nodes_ = None if covered is None else np.array(covered, dtype=np.int64)
    model.n_features_in_, model.history_ = model.coef_.shape[1], []
    if about["feature_names"]:
        model.feature_names_in_ = np.array(about["feature_names"], dtype=object)
    return model


def _finite(values: Any) -> list[float | None]:
    """Numbers as JSON can hold them: infinite ones as null."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _plain(value: Any) -> bool:
    """Whether JSON can hold it: a graph given as such is left out."""
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def _label(site: Any) -> Any:
    """The name of a node as JSON can hold it: numbers and texts as they are, tuples as lists, else as text."""
    if isinstance(site, tuple):
        return [_label(part) for part in site]
    value = site.item() if isinstance(site, np.generic) else site
    return value if isinstance(value, bool | int | float | str) else str(value)


def _hashable(site: Any) -> Any:
    return tuple(_hashable(part) for part in site) if isinstance(site, list) else site


def _scalar(value: Any) -> Any:
    """A number of numpy's, as a grid search may set, in Python's own kind."""
    if not isinstance(value, np.generic):
        raise TypeError(f"a model file cannot hold {value!r}: set that parameter to plain numbers, texts or names")
    return value.item()


def _settings(algorithm: Any) -> dict[str, Any] | None:
    """Return an algorithm of this package in plain values; objects, such as a gossip protocol, are left out."""
    if KINDS.get(type(algorithm).__name__) is not type(algorithm):
        return None
    plain = {name: value for name, value in algorithm.get_params().items() if _plain(value)}
    return {"kind": type(algorithm).__name__, "settings": plain}
