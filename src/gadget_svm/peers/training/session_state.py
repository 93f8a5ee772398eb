"""What a snapshot holds of a training session, and the checks before a session continues from one.

Owns the names of arrays and values. Knows no files; `storage.snapshot` is the value that is stored.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gadget_svm.peers.training.scaling import PARTS
from gadget_svm.peers.wire.messages import SiteStatistics, Statistics
from gadget_svm.study.study import Study, differences

FORMAT = 1
Arrays = dict[str, NDArray[Any]]
Saved = tuple[Arrays, dict[str, Any]]
"""Arrays, and JSON values."""
FRESH = "or start anew with --fresh, which sets the state aside"


def with_prefix(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return copies of arrays under names with a prefix."""
    return {f"{prefix}.{name}": np.array(array) for name, array in arrays.items()}


def without_prefix(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return the arrays whose names have the prefix, without it."""
    return {name.removeprefix(f"{prefix}."): array for name, array in arrays.items() if name.startswith(f"{prefix}.")}


def not_finite(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the names of the arrays that hold anything but finite numbers."""
    return ", ".join(name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all())


def pack_statistics(statistics: Statistics) -> tuple[Arrays, dict[str, Any]]:
    """Return statistics as arrays and JSON values."""
    entries, arrays = statistics.entries, {}
    for part in PARTS:
        if entries and getattr(entries[0], part) is not None:
            arrays[f"statistics.{part}"] = np.array([getattr(entry, part) for entry in entries])
    about = {"names": [entry.name for entry in entries], "rows": [entry.rows for entry in entries]}
    return arrays, about | {"frozen": statistics.frozen.hex()}


def unpack_statistics(arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> Statistics:
    """Return the statistics that `pack_statistics` packed."""
    found = without_prefix("statistics", arrays)
    entries = [
        SiteStatistics(str(name), float(rows), **{part: np.array(values[i]) for part, values in found.items()})
        for i, (name, rows) in enumerate(zip(about["names"], about["rows"], strict=True))
    ]
    return Statistics(tuple(entries), bytes.fromhex(about["frozen"]))


def check_snapshot(
    study: Study, fingerprint: str, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]
) -> bool:
    """Return whether there is anything to continue from; raise ValueError if it does not belong to this session."""
    if about.get("format") != FORMAT:
        raise ValueError(f"the state is of another version of gadget-svm: install that one, {FRESH}")
    has_learned = bool(about["learner"] and about["learner"]["t"]) or bool(about["statistics"])
    same_study, same_rows = about["study"] == study.text(), about["fingerprint"] == fingerprint
    if not has_learned and not (same_study and same_rows):
        return False  # such as that of a node that was refused because of its study
    if not same_study:
        found = differences(study, Study.parse(about["study"]), "study.toml", "the state")
        raise ValueError(f"the state is of another study: {'; '.join(found)}; {FRESH}")
    if not same_rows:
        raise ValueError(
            "the rows have changed since the state was saved, and what was learned belongs to the old ones: put the "
            f"old file back, {FRESH}"
        )
    if spoilt := not_finite(arrays):
        raise ValueError(f"the state is not finite ({spoilt}): use an older one, {FRESH}")
    return has_learned
