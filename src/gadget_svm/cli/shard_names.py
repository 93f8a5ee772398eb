"""Checks of the names of data files and shards, before anything is read."""

from glob import iglob
from pathlib import Path
from urllib.parse import urlsplit

from gadget_svm.cli.train import TrainRequest
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.uris import display_name, scheme_of
from gadget_svm.estimator.shards import shard_names


def check_shards(request: TrainRequest) -> None:
    """Refuse names that are no shards, duplicates, and options that divide rows. A file need not be on this machine."""
    shards, count = request.shards, len(request.shards)
    for shard in shards:
        if shard in ENTRIES:
            raise ValueError(f"{shard!r} is a named data set: train on it alone, or write ./{shard} for a file")
        check_file_name(shard)
    if request.scale != "none" and request.engine == "ray":
        raise ValueError(
            f"--scale {request.scale}: the actors read the shards and do not scale them: scale them before, "
            "omit --engine ray, or put all rows into one file"
        )
    _check_distinct(shards)
    if request.n_nodes not in (None, count):
        raise ValueError(f"--nodes {request.n_nodes}: every shard is a node, and there are {count}: leave out --nodes")
    if request.partition != "even":
        raise ValueError(f"--partition {request.partition}: every shard is a node: omit --partition, or give one file")


def check_file_name(name: str) -> None:
    """Refuse a folder, and a pattern that no shell has expanded."""
    if scheme_of(name):
        if "*" in urlsplit(name).path:
            raise ValueError(
                f"{display_name(name)}: a URI takes no pattern: name each file, or write part-{{0..9}}.svm"
            )
        return
    path = Path(name)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name its files, such as {path / '*.svm'}; each is a node's shard")
    if not path.exists() and next(iglob(name), None) is not None:  # noqa: PTH207 - a pattern may be absolute
        raise ValueError(f"{name} is a pattern, which the shell expands: leave out the quotes around it")


def _check_distinct(shards: list[str]) -> None:
    seen: dict[str, str] = {}
    for shard, name in zip(shards, shard_names(shards), strict=True):
        place = name if scheme_of(name) else str(Path(name).resolve())  # a file: URI may name a link
        if place in seen:
            also = f", also as {display_name(shard)}," if shard != seen[place] else ""
            raise ValueError(f"{display_name(seen[place])}{also} is given twice: each node has its own rows; omit one")
        seen[place] = shard
