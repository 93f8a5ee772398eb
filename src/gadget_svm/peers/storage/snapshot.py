"""What of a node survives a restart, and what it writes as a model. Plain values; knows no files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from gadget_svm.core.types import Floats


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Named arrays, and JSON values beside them. The arrays are not changed after the snapshot was made."""

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ModelDocument:
    """A model for a file: weights of scaled features, how to undo the scaling, and what the file says about itself.

    ``kind`` "certified" and "current" go to the model file, "partition" beside it: a model of a part of the sites never
    replaces a certified one. Two sites with the same document write the same bytes.
    """

    kind: Literal["current", "certified", "partition"]
    weights: Floats  # outputs x width, the intercept last
    divisor: Floats  # features are divided by these
    shift: Floats  # after this was subtracted
    metadata: Mapping[str, Any]


Part = tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]
"""Arrays and JSON values of one part of a node."""


def join_parts(about: Mapping[str, Any], parts: Mapping[str, Part]) -> Snapshot:
    """Return a snapshot of several parts; the names of their arrays are prefixed."""
    arrays = {f"{part}.{name}": array for part, (own, _) in parts.items() for name, array in own.items()}
    return Snapshot(arrays, {**about, "parts": {part: dict(values) for part, (_, values) in parts.items()}})


def split_parts(snapshot: Snapshot) -> dict[str, Part]:
    """Return the parts of a snapshot."""
    parts: dict[str, Part] = {}
    for part, values in snapshot.about["parts"].items():
        start = f"{part}."
        arrays = {name[len(start) :]: array for name, array in snapshot.arrays.items() if name.startswith(start)}
        parts[part] = arrays, values
    return parts
