"""The table of named data sets, from catalog.toml. Facts only: `datasets` finds, downloads and loads them."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes downloaded and their total number, which is None if it is unknown."""


@dataclass(frozen=True)
class FileSet:
    """Files that together make up a data set, named without .gz, .bz2 or .xz.

    ``load`` names the function of `loaders` that reads them. ``subset`` describes them if they are less than the
    published set.
    """

    folders: tuple[str, ...]
    files: tuple[str, ...]
    load: str
    subset: str = ""


@dataclass(frozen=True)
class Mirror:
    """An address of a file, and the SHA-256 that is published for the file there; None if there is none."""

    url: str
    sha256: str | None = None


@dataclass(frozen=True)
class Entry:
    """One named data set: the published numbers of training and test ``rows``, the paper's ``lam`` and other facts."""

    title: str
    rows: tuple[int, int]
    features: int
    lam: float | None = None
    positive: int | None = None
    page: str = ""
    file_sets: tuple[FileSet, ...] = ()
    downloads: Mapping[str, tuple[Mirror, ...]] = field(default_factory=dict)  # file name to mirrors, tried in turn
    builtin: str | None = None  # the loader of a data set that comes with scikit-learn


def _entry(facts: dict[str, Any]) -> Entry:
    facts["rows"] = tuple(facts["rows"])
    facts["file_sets"] = tuple(FileSet(**each) for each in facts.get("file_sets", ()))
    files = facts.get("downloads", ())
    facts["downloads"] = {file["name"]: tuple(Mirror(**mirror) for mirror in file["mirrors"]) for file in files}
    return Entry(**facts)


_TEXT = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
ENTRIES: Mapping[str, Entry] = {name: _entry(facts) for name, facts in tomllib.loads(_TEXT).items()}
