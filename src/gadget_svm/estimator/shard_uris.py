"""Paths and URIs of shards: checks them before anything is read."""

from collections.abc import Iterable
from os import fspath
from typing import Any
from urllib.parse import urlsplit

from gadget_svm.data.uris import LOCAL, display_name, file_name, local_path, scheme_of

__all__ = ["LOCAL", "display_name", "local_path", "scheme_of", "shard_names"]


def shard_names(shards: Iterable[Any]) -> list[str]:
    """The checked paths and URIs of shards; relative paths become absolute, as actors have other folders."""
    return [_checked(fspath(shard)) for shard in shards]


def _checked(place: str) -> str:
    scheme = scheme_of(place)
    if scheme in LOCAL:
        return str(local_path(place) if scheme else local_path(place).resolve())
    try:
        urlsplit(place).port  # noqa: B018 - it raises
    except ValueError:
        raise ValueError(
            f"a {scheme}:// shard has something after a ':' that is no port: in a name or a password write %3A, %2F, "
            "%3F, %23 and %40 for : / ? # @"
        ) from None
    file_name(place)
    return place
