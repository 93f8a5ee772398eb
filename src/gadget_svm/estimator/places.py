"""Where a shard is: a path or a URI. Owns how the one is told from the other, and fetching what is not a local file.

What cannot be read is an error that names the shard, without the secrets a URI may carry.
"""

import base64
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException
from importlib import import_module
from os import fspath
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from gadget_svm.data.fetch import WEB, web_opener
from gadget_svm.data.files import DataFileError, Raw
from gadget_svm.data.formats import read_raw

LOCAL = ("", "file")
PATIENCE = 60.0
"""Seconds that a web server may say nothing."""


def scheme_of(place: str) -> str:
    """The scheme of a URI, empty for a path: a drive's letter, or a colon in a name, makes no URI."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://|(file):/", place)
    return (found[1] or found[2]).lower() if found else ""


def shard_names(shards: Iterable[Any]) -> list[str]:
    """The places of shards that are all files or URIs, checked; paths from the driver's folder become whole ones."""
    return [_checked(fspath(shard)) for shard in shards]


def _checked(place: str) -> str:
    scheme = scheme_of(place)
    if scheme in LOCAL:
        return str(local(place) if scheme else local(place).resolve())
    try:
        urlsplit(place).port  # noqa: B018 - it raises
    except ValueError:
        raise ValueError(
            f"a {scheme}:// shard has something after a ':' that is no port: in a name or a password write %3A, %2F, "
            "%3F, %23 and %40 for : / ? # @"
        ) from None
    file_name(place)
    return place


def local(place: str) -> Path:
    """The path that is given, or that a file: URI means."""
    if not scheme_of(place):
        return Path(place)
    parts = urlsplit(place)
    if parts.netloc not in ("", "localhost"):
        host = parts.netloc.rpartition("@")[2]
        raise ValueError(
            f"file://{host}{parts.path} is a file of the machine {host!r}, which other machines cannot read: write "
            f"file://{parts.path} if all machines have it under that name"
        )
    if parts.query or parts.fragment:
        raise ValueError(f"{place} has a '?' or '#', which end a URI's path: in a file's name write %3F and %23")
    return Path(unquote(parts.path))


def file_name(place: str) -> str:
    """The last part of a URI's path, by whose ending the format is known."""
    name = PurePosixPath(unquote(urlsplit(place).path)).name
    if not name:
        raise ValueError(
            f"{shown(place)} names no file, so its format cannot be told: give a URI whose path ends in a file's name, "
            "such as part-0.svm"
        )
    return name


def shown(place: str) -> str:
    """A place as it may be printed: a URI without the keys in it."""
    if scheme_of(place) in LOCAL:
        return place
    rest = re.split("[?#]", place.partition("://")[2])[0]
    return f"{scheme_of(place)}://{rest.rpartition('@')[2]}"  # a password with a / in it looks like a path


def read_place(place: str, label: str | None = None) -> Raw:
    """Read a file by its path, or by a URI of any file system that is at hand; ``label`` is the label's column."""
    if scheme_of(place) in LOCAL:
        return read_raw(local(place), label)
    with tempfile.TemporaryDirectory(prefix="gadget") as folder:
        copy = Path(folder) / file_name(place)
        try:
            with copy.open("wb") as target:
                fetch(place, target)
            return read_raw(copy, label)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"no shard {shown(place)} ({_said(error, place)}): check the spelling") from None
        except (OSError, HTTPException) as error:
            raise OSError(f"{shown(place)} cannot be read: {_said(error, place)}") from None
        except ValueError as error:  # of what is in it, or of a label that is not
            kind = DataFileError if isinstance(error, DataFileError) else ValueError
            raise kind(_said(error, place).replace(str(copy), shown(place))) from None


def _said(error: Exception, place: str) -> str:
    return str(error).replace(place, shown(place)) or type(error).__name__


def fetch(place: str, target: Any) -> None:
    """Copy what is there, all of it."""
    if scheme_of(place) in WEB:
        _fetch_web(place, target)
        return
    try:
        _fetch_arrow(place, target)
    except ImportError:
        _fetch_fsspec(place, target)


def _request(place: str) -> urllib.request.Request:
    """What a name and password in a URI ask for is basic authentication; another server that we are sent on to does
    not get them."""
    parts = urlsplit(place)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl())
    if at:
        name, _, word = user.partition(":")
        said = base64.b64encode(f"{unquote(name)}:{unquote(word)}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {said}")
    return request


def _fetch_web(place: str, target: Any) -> None:
    try:
        with web_opener().open(_request(place), timeout=PATIENCE) as source:
            shutil.copyfileobj(source, target)
            said, came = source.headers.get("Content-Length"), target.tell()
    except urllib.error.HTTPError as error:
        kind = FileNotFoundError if error.code in (404, 410) else OSError
        raise kind(f"the server answers {error.code} {error.reason}") from None
    if said is not None and int(said) != came:
        raise OSError(f"only {came:,} of {int(said):,} bytes came")


def _fetch_arrow(place: str, target: Any) -> None:
    from pyarrow import ArrowException, fs

    try:
        system, path = fs.FileSystem.from_uri(place)
    except (ArrowException, ValueError):
        raise ImportError(f"pyarrow knows no file system {scheme_of(place)!r}") from None
    with system.open_input_stream(path, compression=None) as source:
        shutil.copyfileobj(source, target)


def _fetch_fsspec(place: str, target: Any) -> None:
    scheme = scheme_of(place)
    try:
        fsspec: Any = import_module("fsspec")
    except ImportError as error:
        raise ImportError(
            f"{shown(place)}: reading {scheme}:// takes pyarrow (s3, gs, hdfs) or fsspec with the package for "
            f"{scheme}: pip install 'gadget-svm[parquet]', or fsspec, where the actors run"
        ) from error
    with fsspec.open(place, "rb") as source:
        shutil.copyfileobj(source, target)
