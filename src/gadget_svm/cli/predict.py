"""`gadget predict`: a model file and rows in, answers out. Owns how rows of another width or order meet the model."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from gadget_svm.cli.output_files import (
    MODEL,
    check_format,
    from_stdin,
    require_lasting,
    require_other,
    require_writable,
)
from gadget_svm.data import load_dataset
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.files import without_compression_suffix
from gadget_svm.data.formats import align_tables, read_raw, read_unlabelled, warn_guessed_label
from gadget_svm.data.tables import binarize_labels
from gadget_svm.data.uris import Location, display_name, join, parse_location, write_file
from gadget_svm.estimator import GadgetSVC, load_model
from gadget_svm.report.formatting import percent

FIXED_WIDTH = (".csv", ".tsv", ".parquet", ".pq", ".npz")
"""Tables that write every column: one that is narrower than the model has other columns."""


class Rows(NamedTuple):
    """What to predict, and the truth where it is known."""

    X: Any
    columns: tuple[str, ...] | None  # the names, where there are some
    y: NDArray[Any] | None = None
    label: str | None = None  # the name of the column of y
    guessed: int | None = None  # its number, where it has no name


def run_prediction(
    path: str,
    data: str,
    node: str | None,
    out: str | None,
    label: str | None,
    no_label: bool,
    positive: str | None,
    zero_based: bool | None,
    data_dir: Path | None,
    format: str | None = None,
    as_json: bool = False,
) -> None:
    """Predict, write, and say how many were right."""
    if as_json and out == "-":
        raise ValueError("--json and --out - both write to stdout: leave out --out, and the JSON has the predictions")
    check_format(format)
    require_lasting(out, "--out")
    if out is not None and out != "-":
        require_other(parse_location(out), "--out", parse_location(data), model_file(path))
        if data != "-":  # else when they are read
            require_writable(parse_location(out), "--out")
    if data == "-":
        with from_stdin(data) as spooled:
            run_prediction(path, spooled, node, out, label, no_label, positive, zero_based, data_dir, format, as_json)
        return
    if no_label and (label is not None or positive is not None):
        raise ValueError("--no-label says that no column is a label: leave out --label and --positive, or it")
    model = load_model(model_file(path))
    rows = load_rows(data, label, positive, zero_based, data_dir, no_label, format)
    if label is None and positive is None and lacks_label(rows, data, model, format):
        rows = Rows(*read_unlabelled(data, format=format))
    if rows.guessed is not None and positive is None and rows.y is not None:
        require_known(data, model, rows.y)
    warn_guessed_label(display_name(data), rows.guessed)
    X = rows.X
    if hasattr(model, "feature_names_in_"):
        X = in_order(X, data, rows.columns, model.feature_names_in_.tolist())
        del model.feature_names_in_  # compared by now: scikit-learn would warn that a matrix has none
    X = fit_width(X, data, model.n_features_in_, format)
    answers = (model if node is None else model.node(site_called(model, node))).predict(X)
    if out is not None and out != "-":
        write_answers(out, answers)
    if as_json:
        typer.echo(json.dumps(as_object(model, node, answers, rows.y, out), allow_nan=False))
        return
    said = f"{len(answers):,} rows predicted" if rows.y is None else verdict(model, answers, rows.y)
    typer.echo(f"{said} by {whose(model, node)}", err=out == "-")
    if out == "-":
        write_answers(out, answers)


def as_object(
    model: GadgetSVC, node: str | None, answers: NDArray[Any], y: NDArray[Any] | None, out: str | None
) -> dict[str, Any]:
    """Return the result for --json: ``accuracy`` is null without labels the model knows."""
    strange, classes = ([], 0) if y is None else (unknown_labels(model, y), len(np.unique(y)))
    about = {
        "model": whose(model, node),
        "rows": len(answers),
        "accuracy": None if y is None or len(strange) == classes else share_right(answers, y),
        "unknown_labels": strange,
    }
    return about | ({"predictions": answers.tolist()} if out is None else {"out": display_name(parse_location(out))})


def site_called(model: GadgetSVC, node: str) -> Any:
    """The site of this name, as the model has it; else the text, or the number it is."""
    for site in model.sites_:
        if str(site) == node:
            return site
    return int(node) if node.isdecimal() else node


def model_file(given: str) -> Location:
    """The file itself, or the one in a folder; of a URI the ending tells which it is."""
    place = parse_location(given)
    folder = place.is_dir() if isinstance(place, Path) else not place.partition("?")[0].endswith(".safetensors")
    return join(place, MODEL) if folder else place


def whose(model: GadgetSVC, node: str | None) -> str:
    """Who answers: the file of a peer holds the model of one site."""
    if node is not None:
        return f"node {node}"
    if len(model.node_coef_) > 1:
        return "the network average"
    site = str(model.sites_[0])
    return f"node {site}" if site.isdigit() else f"the model of {site}"


def load_rows(
    data: str,
    label: str | None,
    positive: str | None,
    zero_based: bool | None,
    data_dir: Path | None,
    no_label: bool,
    format: str | None = None,
) -> Rows:
    """A named data set's test part, or all rows of a file."""
    if data in ENTRIES:
        chosen: dict[str, Any] = {} if positive is None else {"positive": positive}
        known = load_dataset(data, label=label, data_dir=data_dir, **chosen)
        return Rows(known.X_test, None, None if no_label else known.y_test)
    if isinstance(place := parse_location(data), Path) and not place.is_file():
        load_dataset(data)  # which knows the sentence for a name or file that is not there
    if no_label:
        return Rows(*read_unlabelled(data, zero_based=zero_based, format=format))
    raw = read_raw(data, label, format)
    [(X, y)] = align_tables([display_name(data)], [raw], None, zero_based)
    return Rows(X, raw.columns, binarize_labels(y, positive), raw.label, raw.guessed)


def lacks_label(rows: Rows, name: str, model: GadgetSVC, format: str | None = None) -> bool:
    """Whether what was taken for the label of a table is a feature of the model."""
    if rows.y is None or not writes_every_column(name, format):
        return False
    wanted = getattr(model, "feature_names_in_", None)
    if wanted is not None and rows.columns is not None:
        return rows.label in wanted.tolist()
    return bool(rows.X.shape[1] == model.n_features_in_ - 1)


def writes_every_column(name: str, format: str | None = None) -> bool:
    """Whether a file's width is that of its rows; svmlight leaves out features that do not occur."""
    if format is not None:
        return format != "svmlight"
    return name not in ENTRIES and without_compression_suffix(Path(display_name(name))).suffix.lower() in FIXED_WIDTH


def in_order(X: Any, name: str, columns: tuple[str, ...] | None, wanted: list[str]) -> Any:
    """The columns as the model has them; a file without names is taken as it is."""
    if columns is None or list(columns) == wanted:
        return X
    place = {column: i for i, column in enumerate(columns)}
    missing = [column for column in wanted if column not in place]
    if missing:
        raise ValueError(f"{name} has no column {missing[0]!r}, which the model was trained on: is it the right file?")
    return X[:, [place[column] for column in wanted]]


def fit_width(X: Any, name: str, width: int, format: str | None = None) -> Any:
    """The rows as wide as the model: an svmlight file that is narrower is padded."""
    from scipy.sparse import csr_matrix

    fixed = name in ENTRIES or writes_every_column(name, format)
    if X.shape[1] > width or (X.shape[1] < width and fixed):
        raise ValueError(f"{name} has {X.shape[1]} features, the model was trained on {width}: is it the right file?")
    return csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


def verdict(model: GadgetSVC, answers: NDArray[Any], y: NDArray[Any]) -> str:
    """The accuracy, if the rows have labels the model knows."""
    strange = unknown_labels(model, y)
    if len(strange) == len(np.unique(y)):
        known = ", ".join(sorted(map(str, model.classes_.tolist()))[:5])
        return (
            f"{len(y):,} rows predicted; no accuracy, as their labels ({', '.join(strange[:5])}) are none of the "
            f"model's ({known}): --positive says which label is +1. Predicted"
        )
    note = f" (the model does not know the label {strange[0]}, which counts as wrong)" if strange else ""
    return f"accuracy {percent(share_right(answers, y))} of {len(y):,} rows{note}"


def require_known(name: str, model: GadgetSVC, y: NDArray[Any]) -> None:
    """Refuse a guess: a last column that was taken as the label, and holds none of the model's classes."""
    strange = unknown_labels(model, y)
    if len(strange) == len(np.unique(y)):
        known = ", ".join(sorted(map(str, model.classes_.tolist()))[:5])
        raise ValueError(
            f"{name} has no header, and its last column ({', '.join(strange[:3])}, ...) holds none of the model's "
            f"classes ({known}): --label 0 says that the label is in front, --no-label that there is none"
        )


def unknown_labels(model: GadgetSVC, y: NDArray[Any]) -> list[str]:
    """Return the labels of rows that the model has no class for, as text."""
    known = {str(label) for label in model.classes_.tolist()}
    return sorted({str(label) for label in np.unique(y).tolist()} - known)


def share_right(answers: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the share of answers that are the label, compared as text."""
    return float(np.mean([str(a) == str(b) for a, b in zip(answers.tolist(), y.tolist(), strict=True)]))


def write_answers(out: str, answers: NDArray[Any]) -> None:
    """One per line."""
    text = "".join(f"{answer}\n" for answer in answers.tolist())
    if out == "-":
        sys.stdout.write(text)
    else:
        write_file(parse_location(out), text.encode())
