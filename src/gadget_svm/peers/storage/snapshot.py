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
    factor: Floats  # features are divided by these
    shift: Floats  # after this was subtracted
    metadata: Mapping[str, Any]
