"""Answers of a model file for rows. Owns how rows of another width or column order fit the model."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import typer
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gadget_svm.cli.output import MODEL, check_not_read, check_target, from_stdin
from gadget_svm.cli.predict import PredictRequest
from gadget_svm.data import load_dataset
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.files import without_compression_suffix
from gadget_svm.data.formats import align_tables, read_raw, read_unlabelled, warn_guessed_label
from gadget_svm.data.tables import binarize_labels
from gadget_svm.data.uris import Location, display_name, join, parse_location, write_file
from gadget_svm.estimator import GadgetSVC, load_model
from gadget_svm.report.formatting import percent

DENSE_EXTENSIONS = (".csv", ".tsv", ".parquet", ".pq", ".npz")
"""Files that hold every column: one that is narrower than the model has other columns."""
MAX_LABELS_IN_MESSAGE = 5


class Rows(NamedTuple):
    """Rows to predict, and their labels where they are known."""

    X: Any
    columns: tuple[str, ...] | None  # the names, where there are some
    y: NDArray[Any] | None = None
    label: str | None = None  # the name of the column of y
    guessed: int | None = None  # its number, if neither header nor option names it


def run_prediction(request: PredictRequest) -> None:
    """Predict with a trained model and, where rows have labels, print the accuracy."""
    _check(request)
    with from_stdin(request.data) as source:
        if request.no_label and (request.label is not None or request.positive is not None):
            raise ValueError("--no-label says that no column is a label: leave out --label and --positive, or it")
        model = load_model(model_file(request.model))
        rows = labelled_rows(request, source, model)
        X = fit_columns(rows, source, model, request.format)
        answers = (model if request.node is None else model.node(site_named(model, request.node))).predict(X)
    text = "".join(f"{answer}\n" for answer in answers.tolist())
    if request.out is not None and request.out != "-":
        write_file(parse_location(request.out), text.encode())
    if request.json:
        typer.echo(json.dumps(as_object(request, model, answers, rows.y), allow_nan=False))
        return
    result = f"{len(answers):,} rows predicted" if rows.y is None else accuracy_sentence(model, answers, rows.y)
    typer.echo(f"{result} by {model_name(model, request.node)}", err=request.out == "-")
    if request.out == "-":
        sys.stdout.write(text)


def _check(request: PredictRequest) -> None:
    """Check what can be checked before anything is read."""
    if request.json and request.out == "-":
        raise ValueError("--json and --out - both write to stdout: leave out --out, and the JSON has the predictions")
    if request.out is not None and request.out != "-":
        target = parse_location(request.out)
        check_not_read(target, "--out", [parse_location(request.data), model_file(request.model)])
        check_target(target, "--out")


def model_file(given: str) -> Location:
    """Return the model file: the one given, or the one in a folder; for a URI the extension decides."""
    place = parse_location(given)
    folder = place.is_dir() if isinstance(place, Path) else not place.partition("?")[0].endswith(".safetensors")
    return join(place, MODEL) if folder else place


def site_named(model: GadgetSVC, node: str) -> Any:
    """Return the model's site of this name; else the number, or the text."""
    for site in model.sites_:
        if str(site) == node:
            return site
    return int(node) if node.isdecimal() else node


def model_name(model: GadgetSVC, node: str | None) -> str:
    """Return which model answers: a peer's file holds the model of one site."""
    if node is not None:
        return f"node {node}"
    if len(model.node_coef_) > 1:
        return "the network average"
    site = str(model.sites_[0])
    return f"node {site}" if site.isdigit() else f"the model of {site}"


# Rows


def labelled_rows(request: PredictRequest, source: str, model: GadgetSVC) -> Rows:
    """Read a named data set's test rows, or a file; without labels if its label column is a feature of the model."""
    if source in ENTRIES:
        chosen: dict[str, Any] = {} if request.positive is None else {"positive": request.positive}
        known = load_dataset(source, label=request.label, data_dir=request.data_dir, **chosen)
        return Rows(known.X_test, None, None if request.no_label else known.y_test)
    if isinstance(place := parse_location(source), Path) and not place.is_file():
        load_dataset(source)  # raises the error for a missing name or file
    if request.no_label:
        return Rows(*read_unlabelled(source, zero_based=request.zero_based, format=request.format))
    raw = read_raw(source, request.label, request.format)
    [(X, y)] = align_tables([display_name(source)], [raw], None, request.zero_based)
    y = binarize_labels(y, request.positive)
    rows = Rows(X, raw.columns, y, raw.label, raw.guessed)
    if request.label is None and request.positive is None and lacks_label(rows, source, model, request.format):
        rows = Rows(*read_unlabelled(source, format=request.format))
    if rows.guessed is not None and request.positive is None:
        check_guessed_label(source, model, y)
    warn_guessed_label(display_name(source), rows.guessed)
    return rows


def lacks_label(rows: Rows, source: str, model: GadgetSVC, format: str | None) -> bool:
    """Return whether the column that was taken for the label of a table is a feature of the model."""
    if not is_dense(source, format):
        return False
    wanted = getattr(model, "feature_names_in_", None)
    if wanted is not None and rows.columns is not None:
        return rows.label in wanted.tolist()
    return bool(rows.X.shape[1] == model.n_features_in_ - 1)


def is_dense(source: str, format: str | None) -> bool:
    """Return whether a file's width is that of its rows; svmlight leaves out features that do not occur."""
    if format is not None:
        return format != "svmlight"
    return without_compression_suffix(Path(display_name(source))).suffix.lower() in DENSE_EXTENSIONS


def fit_columns(rows: Rows, source: str, model: GadgetSVC, format: str | None) -> Any:
    """Return the rows with the model's columns: matched by name, else by position; narrow svmlight is padded."""
    X, width = rows.X, model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        wanted = model.feature_names_in_.tolist()
        del model.feature_names_in_  # matched here: scikit-learn would warn that a matrix has no names
        if rows.columns is not None and list(rows.columns) != wanted:
            position = {column: i for i, column in enumerate(rows.columns)}
            missing = [column for column in wanted if column not in position]
            if missing:
                raise ValueError(
                    f"{source} has no column {missing[0]!r}, which the model was trained on: is it the right file?"
                )
            X = X[:, [position[column] for column in wanted]]
    dense = source in ENTRIES or is_dense(source, format)
    if X.shape[1] > width or (X.shape[1] < width and dense):
        raise ValueError(f"{source} has {X.shape[1]} features, the model was trained on {width}: is it the right file?")
    return csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


# Labels


def unknown_labels(model: GadgetSVC, y: NDArray[Any]) -> tuple[list[str], bool]:
    """Return the labels that are none of the model's classes, as text, and whether these are all."""
    labels = {str(label) for label in y.tolist()}
    unknown = sorted(labels - {str(label) for label in model.classes_.tolist()})
    return unknown, len(unknown) == len(labels)


def _classes(model: GadgetSVC) -> str:
    return ", ".join(sorted(map(str, model.classes_.tolist()))[:MAX_LABELS_IN_MESSAGE])


def check_guessed_label(source: str, model: GadgetSVC, y: NDArray[Any]) -> None:
    """Refuse a last column that was taken for the label, and holds none of the model's classes."""
    unknown, all_unknown = unknown_labels(model, y)
    if all_unknown:
        raise ValueError(
            f"{source} has no header, and its last column ({', '.join(unknown[:3])}, ...) holds none of the model's "
            f"classes ({_classes(model)}): --label 0 says that the label is in front, --no-label that there is none"
        )


def share_right(answers: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the share of answers that are the label, compared as text."""
    return sum(str(a) == str(b) for a, b in zip(answers.tolist(), y.tolist(), strict=True)) / max(len(y), 1)


def accuracy_sentence(model: GadgetSVC, answers: NDArray[Any], y: NDArray[Any]) -> str:
    """Return the accuracy in words, if the rows have labels that the model knows."""
    unknown, all_unknown = unknown_labels(model, y)
    if all_unknown:
        return (
            f"{len(y):,} rows predicted; no accuracy, as their labels ({', '.join(unknown[:MAX_LABELS_IN_MESSAGE])}) "
            f"are none of the model's ({_classes(model)}): --positive says which label is +1. Predicted"
        )
    note = f" (the model does not know the label {unknown[0]}, which counts as wrong)" if unknown else ""
    return f"accuracy {percent(share_right(answers, y))} of {len(y):,} rows{note}"


def as_object(
    request: PredictRequest, model: GadgetSVC, answers: NDArray[Any], y: NDArray[Any] | None
) -> dict[str, Any]:
    """Return the result for --json: ``accuracy`` is null without labels that the model knows."""
    unknown, all_unknown = ([], True) if y is None else unknown_labels(model, y)
    about = {
        "model": model_name(model, request.node),
        "rows": len(answers),
        "accuracy": None if y is None or all_unknown else share_right(answers, y),
        "unknown_labels": unknown,
    }
    if request.out is None:
        return about | {"predictions": answers.tolist()}
    return about | {"out": display_name(parse_location(request.out))}
