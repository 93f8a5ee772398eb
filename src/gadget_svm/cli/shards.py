"""Shards as a user names them, one a node: owns what is refused before anything starts, and how test rows meet them."""

from glob import escape, iglob
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from gadget_svm.cli.train_request import Order
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.formats import align_tables, read_raw
from gadget_svm.data.tables import RawTable
from gadget_svm.estimator.shard_uris import display_name, scheme_of, shard_names
from gadget_svm.estimator.shards import Agreed


def check_shards(order: Order) -> None:
    """Refuse what is no shard, one given twice, and options that deal out rows. A file need not be on this machine."""
    for shard in order.shards:
        if shard in ENTRIES:
            raise ValueError(
                f"{shard!r} is a named data set, which is no shard: train on it alone, or write ./{shard} if a file of "
                "that name is meant"
            )
        check_place(shard)
    if order.format is not None and order.engine == "ray":
        raise ValueError(f"--format {order.format}: actors know a shard's format by its ending: rename the shards")
    if order.scale != "none" and order.engine == "ray":
        raise ValueError(
            f"--scale {order.scale}: the actors read the shards, and their rows are not scaled: scale the shards "
            "beforehand, leave out --engine ray so that all rows are read here, or put them into one file"
        )
    _require_distinct(order.shards)
    count = len(order.shards)
    if order.nodes not in (None, count):
        raise ValueError(f"--nodes {order.nodes}: every shard is a node, and there are {count}: leave out --nodes")
    if order.partition != "even":
        raise ValueError(
            f"--partition {order.partition}: every shard is a node, so no rows are left to deal out: leave out "
            "--partition, or put all rows into one file"
        )


def check_place(place: str) -> None:
    """Refuse a folder, and a pattern that no shell has expanded."""
    if scheme := scheme_of(place):
        if "*" in urlsplit(place).path:
            raise ValueError(
                f"{display_name(place)} is a pattern, and no shell knows the files behind {scheme}://: name each of "
                "them; part-{0..9}.svm means ten names"
            )
        return
    path = Path(place)
    if path.is_dir():
        raise IsADirectoryError(
            f"{path} is a folder: name the files in it, such as {path / '*.svm'}, and each is a node's shard"
        )
    if escape(place) != place and not path.exists():
        if next(iglob(place), None) is not None:  # noqa: PTH207 - a pattern may be absolute
            raise ValueError(f"{place} is a pattern, which the shell expands: leave out the quotes around it")
        raise FileNotFoundError(f"no file matches {place}: check the spelling, or give the path from {Path.cwd()}")


def _require_distinct(shards: tuple[str, ...]) -> None:
    seen: dict[str, str] = {}
    for shard, name in zip(shards, shard_names(shards), strict=True):
        place = name if scheme_of(name) else str(Path(name).resolve())  # a file: URI may name a link
        if place in seen:
            both = (
                display_name(shard)
                if shard == seen[place]
                else f"{display_name(seen[place])}, also as {display_name(shard)},"
            )
            raise ValueError(f"{both} is given twice, and every node has rows of its own: leave one out")
        seen[place] = shard


def read_test(order: Order) -> RawTable | None:
    """The test rows as they are in their file."""
    return None if order.test is None else read_raw(order.test, order.label, order.format)


def matched_test(order: Order, test: RawTable | None, agreed: Agreed) -> tuple[csr_matrix | None, NDArray[Any] | None]:
    """Test rows as wide as the shards and numbered like them. A feature that no shard has is left out: no model weighs
    it."""
    if test is None or order.test is None:
        return None, None
    like = RawTable(csr_matrix((1, agreed.features)), np.zeros(1), agreed.columns)
    places = [display_name(order.shards[0]), display_name(order.test)]
    X, y = align_tables(places, [like, test], None, agreed.zero_based)[1]
    return csr_matrix(X[:, : agreed.features]), y
