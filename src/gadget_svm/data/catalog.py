"""The table of named data sets, from catalog.toml. Facts only: `datasets` finds, downloads and loads them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Layout:
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
    """An address of a file and the SHA-256 published for the file there, if one is."""

    url: str
    sha256: str | None = None


@dataclass(frozen=True)
class RemoteFile:
    """A file to download; the mirrors are tried in turn."""

    name: str
    mirrors: tuple[Mirror, ...]


@dataclass(frozen=True)
class Entry:
    """One named data set: ``rows`` of the training and the test part as published, the paper's ``lam``."""

    title: str
    rows: tuple[int, int]
    features: int
    lam: float | None = None
    positive: int | None = None
    page: str = ""
    layouts: tuple[Layout, ...] = ()
    downloads: tuple[RemoteFile, ...] = ()
    builtin: str | None = None  # the loader of a data set that comes with scikit-learn


def _entry(facts: dict[str, Any]) -> Entry:
    layouts = [Layout(**layout) for layout in facts.pop("layouts", ())]
    downloads = [
        RemoteFile(file["name"], tuple(Mirror(**mirror) for mirror in file["mirrors"]))
        for file in facts.pop("downloads", ())
    ]
    return Entry(**facts | {"rows": tuple(facts["rows"])}, layouts=tuple(layouts), downloads=tuple(downloads))


_TEXT = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
ENTRIES: Mapping[str, Entry] = {name: _entry(facts) for name, facts in tomllib.loads(_TEXT).items()}
