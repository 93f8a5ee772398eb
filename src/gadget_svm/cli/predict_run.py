"""Predicts rows with a model file. Owns how rows with another width or order of columns are fitted to the model."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import typer
from scipy.sparse import csr_matrix

from gadget_svm.cli.output import MODEL, check_target, from_stdin, gap_at_most
from gadget_svm.cli.predict import PredictRequest
from gadget_svm.core.types import Array
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.datasets import file_location, load_dataset
from gadget_svm.data.formats import align_tables, read_raw, warn_guessed_label
from gadget_svm.data.tables import LabelColumn, NoLabel, RawTable, binarize_labels
from gadget_svm.data.uris import Location, display_name, join, parse_location, write_file
from gadget_svm.estimator import GadgetSVC, load_model
from gadget_svm.report.formatting import percent

MAX_LABELS_IN_MESSAGE, MAX_SITES = 5, 10


def run_prediction(request: PredictRequest) -> None:
    """Predict with a trained model and, where rows have labels, print the accuracy."""
    _check(request)
    with from_stdin(request.data) as source:
        model = load_model(model_file(request.model))
        rows, y, table = read_rows(request, source, model)
        X = fit_columns(rows, table, source, model)
        answers = (model if request.node is None else model.node(site_named(model, request.node))).predict(X)
    found = {"model": model_name(model, request.node), "rows": len(answers), **scores(model, answers, y)}
    text = "".join(f"{answer}\n" for answer in answers.tolist())
    if (certified := certificate_of(model)) is not None:
        found["certified"] = certified
    if request.out is None:
        output = {"predictions": answers.tolist()}
    elif request.out != "-":
        target = parse_location(request.out)
        write_file(target, text.encode())
        output = {"out": display_name(target)}
    if request.json:
        typer.echo(json.dumps(found | output, allow_nan=False))
        return
    note = "" if certified is None or request.node is not None else f" ({coverage(certified)})"
    typer.echo(f"{sentence(found, model)} by {found['model']}{note}", err=request.out == "-")
    if request.out == "-":
        sys.stdout.write(text)


def _check(request: PredictRequest) -> None:
    """Check what can be checked before anything is read."""
    if request.json and request.out == "-":
        raise ValueError("--json and --out - both write to stdout: leave out --out, and the JSON has the predictions")
    if request.no_label and (request.label is not None or request.positive is not None):
        raise ValueError("--no-label says that no column is a label: leave out --label and --positive, or --no-label")
    if request.out is not None and request.out != "-":
        check_target(parse_location(request.out), "--out", [parse_location(request.data), model_file(request.model)])


def model_file(given: str) -> Location:
    """Return the model file: the one given, or the one in a folder; for a URI the extension decides."""
    place = parse_location(given)
    folder = place.is_dir() if isinstance(place, Path) else not place.partition("?")[0].endswith(".safetensors")
    return join(place, MODEL) if folder else place


def site_named(model: GadgetSVC, node: str) -> Any:
    """Return the site of the model that has this name. If there is none, return the name, as a number if it is one."""
    named: list[Any] = [site for site in model.sites_ if str(site) == node]
    return named[0] if named else int(node) if node.isdecimal() else node


def model_name(model: GadgetSVC, node: str | None) -> str:
    """Return the name of the model that predicts. A file that a peer wrote holds the model of one site."""
    if node is not None:
        return f"node {node}"
    if (study := getattr(model, "study_", None)) is not None:
        sites = f" of {len(model.sites_)} sites" if study["kind"] != "current" else ""
        return f"the {study['kind']} model{sites} of the study {study['study']}"
    if len(model.node_coef_) > 1:
        return "the network average"
    site = str(model.sites_[0])
    return f"node {site}" if site.isdigit() else f"the model of {site}"


def certificate_of(model: GadgetSVC) -> dict[str, Any] | None:
    """Return the bound of a model that peers have certified, with the rows and sites that it covers."""
    study = getattr(model, "study_", {})
    if study.get("kind") != "certified":
        return None
    rows, sites = int(sum(site[2] for site in study["sites"])), list(map(str, model.sites_))
    return {"gap_bound": model.gap_bound_, "rows": rows, "sites": sites, "study": study["study"]}


def coverage(certified: dict[str, Any]) -> str:
    """Return the bound, the rows and the first sites of a certificate in words."""
    sites = certified["sites"]
    more = f" and {len(sites) - MAX_SITES:,} more" if len(sites) > MAX_SITES else ""
    return f"{gap_at_most(certified['gap_bound'])}, {certified['rows']:,} rows: {', '.join(sites[:MAX_SITES])}{more}"


# Rows


def read_rows(request: PredictRequest, source: str, model: GadgetSVC) -> tuple[Any, Array | None, RawTable | None]:
    """Read a named data set's test rows, or a file; without labels if its label column is a feature of the model.

    Returns the rows, their labels where they are known, and the table of the file they are from.
    """
    if source in ENTRIES:
        positive = ... if request.positive is None else request.positive  # ...: the paper's choice
        known = load_dataset(source, label=request.label, data_dir=request.data_dir, positive=positive)
        return known.X_test, None if request.no_label else known.y_test, None
    file_location(source)  # refuses a name that is neither a file nor a data set
    X, y, table = _read_file(request, source, NoLabel.NONE if request.no_label else request.label)
    if request.no_label:
        return X, None, table
    if request.label is None and request.positive is None and label_is_feature(X, table, model):
        X, _, table = _read_file(request, source, NoLabel.NONE)
        return X, None, table
    y = binarize_labels(y, request.positive)
    if table.guessed is not None and request.positive is None and no_label_is_known(model, y):
        raise ValueError(
            f"{source} has no header, and its last column ({_some(y)}) holds none of the model's classes "
            f"({_some(model.classes_)}): --label 0 says that the label is in front, --no-label that there is none"
        )
    warn_guessed_label(display_name(source), table.guessed)
    return X, y, table


def _read_file(request: PredictRequest, source: str, label: LabelColumn) -> tuple[Any, Array, RawTable]:
    table = read_raw(source, label, request.format)
    [(X, y)] = align_tables([display_name(source)], [table], None, request.zero_based)
    return X, y, table


def label_is_feature(X: Any, table: RawTable, model: GadgetSVC) -> bool:
    """Return whether the column that was taken for the label of a table is a feature of the model."""
    if table.sparse_text:
        return False
    wanted = getattr(model, "feature_names_in_", None)
    if wanted is not None and table.columns is not None:
        return table.label in wanted.tolist()
    return bool(X.shape[1] == model.n_features_in_ - 1)


def fit_columns(X: Any, table: RawTable | None, source: str, model: GadgetSVC) -> Any:
    """Return the rows with the model's columns: matched by name, else by position; narrow svmlight is padded."""
    width, names = model.n_features_in_, None if table is None else table.columns
    if hasattr(model, "feature_names_in_"):
        wanted = model.feature_names_in_.tolist()
        del model.feature_names_in_  # matched here: scikit-learn would warn that a matrix has no names
        if names is not None:
            position = {column: i for i, column in enumerate(names)}
            for column in wanted:
                if column not in position:
                    raise ValueError(f"{source} has no column {column!r}, which the model was trained on: wrong file?")
            X = X[:, [position[column] for column in wanted]]
    may_lack_columns = table is not None and table.sparse_text
    if X.shape[1] > width or (X.shape[1] < width and not may_lack_columns):
        raise ValueError(f"{source} has {X.shape[1]} features, the model was trained on {width}: is it the right file?")
    return csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


# Labels


def no_label_is_known(model: GadgetSVC, y: Array) -> bool:
    """Return whether no row has one of the model's classes."""
    return not np.isin(y.astype(str), model.classes_.astype(str)).any()


def scores(model: GadgetSVC, answers: Array, y: Array | None) -> dict[str, Any]:
    """Return the accuracy and the labels that the model does not know. Labels are compared as text.

    The accuracy is None if there are no labels, or if the model knows none of them.
    """
    if y is None:
        return {"accuracy": None, "unknown_labels": []}
    accuracy = None if no_label_is_known(model, y) else float(np.mean(answers.astype(str) == y.astype(str)))
    return {"accuracy": accuracy, "unknown_labels": np.setdiff1d(y.astype(str), model.classes_.astype(str)).tolist()}


def sentence(found: dict[str, Any], model: GadgetSVC) -> str:
    """Return the number of rows and the accuracy in words."""
    accuracy, unknown, rows = found["accuracy"], found["unknown_labels"], f"{found['rows']:,} rows"
    if accuracy is not None:
        note = f" (the model does not know the label {unknown[0]}, which counts as wrong)" if unknown else ""
        return f"accuracy {percent(accuracy)} of {rows}{note}"
    if not unknown:
        return f"{rows} predicted"
    return (
        f"{rows} predicted; no accuracy, as their labels ({_some(unknown)}) are none of the model's "
        f"({_some(model.classes_)}): --positive says which label is +1. Predicted"
    )


def _some(labels: Any) -> str:
    return ", ".join(map(str, np.unique(labels)[:MAX_LABELS_IN_MESSAGE]))
