"""Locations of files: tells local paths from URIs, and reads and writes both.

The standard library reads http and https, and pyarrow all other schemes. If pyarrow does not know a scheme, fsspec
provides the file system. Messages never show the keys that a URI may contain.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from gadget_svm.core.extras import require
from gadget_svm.core.state_file import write_atomically
from gadget_svm.core.temp_folders import scratch_folder
from gadget_svm.data.files import DataFileError

Location = str | Path
"""A URI as text, or a local path."""
LOCAL = ("", "file")
WEB = ("http", "https")
_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]+)"  # a single letter is a drive
GS_RETRY_LIMIT_S = 15
"""How long pyarrow retries a bucket that does not answer. Its own limit is 15 minutes and ignores signals."""


def scheme_of(location: str) -> str:
    """Return the scheme of a URI, or "" for a path. A drive letter or a colon in a name does not make a URI."""
    found = re.match(rf"{_SCHEME}://|(file):/", location)
    return (found[1] or found[2]).lower() if found else ""


def _lost_slash(text: str) -> bool:
    """Return whether this path was made from a URI: the conversion turns :// into :/."""
    return not scheme_of(text) and re.match(rf"{_SCHEME}:/", text) is not None


def parse_location(given: str | os.PathLike[str]) -> Location:
    """Return a URI as text; anything else, also a file: URI, as a local path.

    Raises
    ------
    ValueError
        A path object was made from a URI, so it would name a local folder.
    """
    text = os.fspath(given)
    if not text:
        raise ValueError("a path is empty: was a variable not set?")
    if scheme_of(text) not in LOCAL:
        return text
    if _lost_slash(text):
        raise ValueError(f"{text} is a URI that lost a '/' when it was made a path: give it as text, with '://'")
    return local_path(text)


def require_local_path(given: str | os.PathLike[str], reason: str) -> Path:
    """Return the path, or refuse a URI. ``reason`` says what needs a local path and what to do."""
    text = os.fspath(given)
    if _lost_slash(text):
        text = text.replace(":/", "://", 1)
    if scheme_of(text) not in LOCAL:
        raise ValueError(f"{display_name(text)} is a URI, and {reason}")
    return local_path(text)


def local_path(location: str) -> Path:
    """Return a path as it is, or the path that a file: URI names."""
    if not scheme_of(location):
        return Path(location)
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost"):
        host = parts.netloc.rpartition("@")[2]
        remote = f"file://{host}{parts.path} is a file of the machine {host!r}"
        raise ValueError(f"{remote}: write file://{parts.path} if this machine has it under that name")
    if parts.query or parts.fragment:
        raise ValueError(f"{location} has a '?' or '#', which end a URI's path: in a file's name write %3F and %23")
    return Path(unquote(parts.path))


def file_name(uri: str) -> str:
    """Return the last part of a URI's path. Its suffix gives the format."""
    name = PurePosixPath(unquote(urlsplit(uri).path)).name
    if not name:
        raise ValueError(f"{display_name(uri)} names no file, so its format is unknown: end the path in a file's name")
    return name


def join(folder: Location, name: str) -> Location:
    """Return the location of a file in a folder. The query of a URI stays at its end."""
    if isinstance(folder, Path):
        return folder / name
    parts = urlsplit(folder)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl()


def display_name(location: str | os.PathLike[str]) -> str:
    """Return a location for messages: a URI without the keys in it."""
    text = os.fspath(location)
    if scheme_of(text) in LOCAL:
        return text
    rest = re.split("[?#]", text.partition("://")[2])[0]
    return f"{scheme_of(text)}://{rest.rpartition('@')[2]}"  # a password with a / in it looks like a path


@contextmanager
def local_copy(location: Location) -> Iterator[Path]:
    """Yield the local file, or a temporary copy of a remote one. Errors, also those of the block, name the URI."""
    if isinstance(location, Path):
        yield location
        return
    with scratch_folder() as scratch:
        copy = scratch / file_name(location)
        name = display_name(location)
        try:
            with _open_remote(location, name) as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
            yield copy
        except FileNotFoundError as error:
            raise FileNotFoundError(f"no file {name} ({_message(error, location, name)}): check the spelling") from None
        except (OSError, HTTPException) as error:
            raise OSError(f"{name} cannot be read: {_message(error, location, name)}") from None
        except ValueError as error:  # from the reader of the format
            kind = DataFileError if isinstance(error, DataFileError) else ValueError
            raise kind(_message(error, location, name).replace(str(copy), name)) from None


def write_file(location: Location, content: bytes) -> None:
    """Write a file and create missing parent folders. A half-written local file never replaces a good one."""
    if isinstance(location, Path):
        _write_local(location, content)
    else:
        _write_remote(location, content, display_name(location))


def check_writable(uri: str) -> None:
    """Raise an error if a file cannot be written. To test this, write an empty file beside it and remove it."""
    parts = urlsplit(uri)
    probe = parts._replace(path=f"{parts.path}.{secrets.token_hex(4)}").geturl()
    _write_remote(probe, b"", display_name(uri))
    system, path = _file_system(probe, display_name(uri))
    system.delete_file(path)


def _write_remote(uri: str, content: bytes, name: str) -> None:
    """Write a file; errors call it ``name``."""
    if scheme_of(uri) in WEB:
        raise ValueError(f"{name} can be read but not written: give a path, or a URI such as s3://bucket/name")
    try:
        system, path = _file_system(uri, name)
        with system.open_output_stream(path, compression=None) as target:
            target.write(content)
    except OSError as error:
        raise OSError(f"{name} cannot be written: {_message(error, uri, name)}") from None


def _write_local(target: Path, content: bytes) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: name a file in it")
    if target.exists() and (not target.is_file() or target.is_relative_to("/dev")):  # a pipe or a device
        with target.open("wb") as file:
            file.write(content)
        return
    target = target.resolve()  # the target of a link is written, and the link stays
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, content)


def _message(error: Exception, uri: str, name: str) -> str:
    return str(error).replace(uri, name) or type(error).__name__


def _open_remote(uri: str, name: str) -> Any:
    if scheme_of(uri) in WEB:
        from gadget_svm.data.web import open_web_file  # slow to import

        return open_web_file(uri)
    system, path = _file_system(uri, name)
    return system.open_input_stream(path, compression=None)


def _file_system(uri: str, name: str) -> tuple[Any, str]:
    """Return pyarrow's file system for a URI, and the path in it. Errors call the URI ``name``.

    If pyarrow does not know the scheme, return fsspec's file system in a wrapper of pyarrow.
    """
    scheme = scheme_of(uri)
    unknown = require("pyarrow", f"{name}: {scheme}:// (with Ray, on all machines) needs", "remote").ArrowException
    from pyarrow import fs

    limit = ""
    if scheme in ("gs", "gcs") and "retry_limit_seconds" not in uri:
        limit = f"{'&' if '?' in uri else '?'}retry_limit_seconds={GS_RETRY_LIMIT_S}"
    with suppress(unknown, ValueError):
        system, path = fs.FileSystem.from_uri(uri + limit)
        return system, path
    try:
        system, path = import_module("fsspec.core").url_to_fs(uri)
    except (ValueError, ImportError) as error:  # the scheme is unknown, or its package is missing
        raise type(error)(
            f"{name}: no installed package knows {scheme}:// ({error}): check the spelling, install gadget-svm[remote] "
            "and the package of fsspec for the scheme, or give a path, or a URI such as s3://bucket/name"
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path
