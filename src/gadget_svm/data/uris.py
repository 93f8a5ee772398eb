"""Files by path or URI: tells the one from the other, reads and writes both.

http and https are read with the standard library, other schemes with pyarrow if it knows them, else with fsspec. Errors
name the place without the keys that a URI may carry.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from gadget_svm.core.temp_folders import Scratch
from gadget_svm.data.tables import DataFileError

Location = str | Path
"""A URI as text, or a local path."""
LOCAL = ("", "file")
WEB = ("http", "https")
URI = r"([A-Za-z][A-Za-z0-9+.-]+)"
GS_RETRY_SECONDS = 15
"""pyarrow tries a bucket that does not answer for so long; its own limit is 15 minutes, in which no signal is heard."""


def scheme_of(place: str) -> str:
    """The scheme of a URI, empty for a path: a drive's letter, or a colon in a name, makes no URI."""
    found = re.match(rf"{URI}://|(file):/", place)
    return (found[1] or found[2]).lower() if found else ""


def parse_location(given: str | os.PathLike[str]) -> Location:
    """Return a URI as text and all else, also a file: URI, as a local path.

    Raises
    ------
    ValueError
        If a URI was made a path, which turns :// into :/ and would name a local folder.
    """
    text = os.fspath(given)
    if not text:
        raise ValueError("a path is empty: was a variable not set?")
    if scheme_of(text) not in LOCAL:
        return text
    if not scheme_of(text) and re.match(rf"{URI}:/", text):
        raise ValueError(f"{text} is a URI that lost a '/' when it was made a path: give it as text, with '://'")
    return local_path(text)


def require_local_path(given: str | os.PathLike[str], what: str) -> Path:
    """Return the path, or refuse a URI: ``what`` says what needs a local path and why."""
    text = os.fspath(given)
    if scheme_of(text) not in LOCAL or (not scheme_of(text) and re.match(rf"{URI}:/", text)):
        whole = re.sub(rf"^{URI}:/(?!/)", r"\1://", text)  # a path has lost a slash
        raise ValueError(f"{display_name(whole)} is a URI, and {what}")
    return local_path(text)


def local_path(place: str) -> Path:
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
            f"{display_name(place)} names no file, so its format cannot be told: give a URI whose path ends in a name, "
            "such as part-0.svm"
        )
    return name


def join(folder: Location, name: str) -> Location:
    """A file in a folder; what follows a '?' in a URI stays at its end."""
    if isinstance(folder, Path):
        return folder / name
    parts = urlsplit(folder)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl()


def display_name(place: str | os.PathLike[str]) -> str:
    """A place as it may be printed: a URI without the keys in it."""
    text = os.fspath(place)
    if scheme_of(text) in LOCAL:
        return text
    rest = re.split("[?#]", text.partition("://")[2])[0]
    return f"{scheme_of(text)}://{rest.rpartition('@')[2]}"  # a password with a / in it looks like a path


@contextmanager
def local_copy(place: Location) -> Iterator[Path]:
    """The local file, or a temporary copy of what a URI names. Errors, also of the block, name the URI."""
    if isinstance(place, Path):
        yield place
        return
    with Scratch() as scratch:
        copy = scratch.path / file_name(place)
        try:
            with copy.open("wb") as target:
                _fetch(place, target)
            yield copy
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"no file {display_name(place)} ({_said(error, place)}): check the spelling"
            ) from None
        except (OSError, HTTPException) as error:
            raise OSError(f"{display_name(place)} cannot be read: {_said(error, place)}") from None
        except ValueError as error:  # of what is in it, or of a label that is not
            kind = DataFileError if isinstance(error, DataFileError) else ValueError
            raise kind(_said(error, place).replace(str(copy), display_name(place))) from None


def write_file(place: Location, content: bytes) -> None:
    """Write a file. A half-written local file never replaces a good one; parents are made where they are missing."""
    if isinstance(place, Path):
        _write_local(place, content)
        return
    require_writable_scheme(place)
    try:
        with _open(place, "wb") as target:
            target.write(content)
    except OSError as error:
        raise OSError(f"{display_name(place)} cannot be written: {_said(error, place)}") from None


def require_writable_scheme(place: str) -> None:
    """Refuse a URI of the web: it can be read only."""
    if scheme_of(place) in WEB:
        raise ValueError(
            f"{display_name(place)} can be read but not written: give a path, or a URI such as s3://bucket/name"
        )


def check_writable(target: str) -> None:
    """Raise unless a file can be written by its URI; an empty file of another name is written and removed again."""
    require_writable_scheme(target)
    parts = urlsplit(target)
    place = parts._replace(path=f"{parts.path}.{secrets.token_hex(4)}").geturl()
    try:
        write_file(place, b"")
    except (OSError, ValueError, ImportError) as error:
        kind = next(kind for kind in (OSError, ImportError, ValueError) if isinstance(error, kind))
        raise kind(str(error).replace(display_name(place), display_name(target))) from None
    found = _arrow(place)
    if found is not None:
        found[0].delete_file(found[1])
    else:
        system, path = _fsspec(place).core.url_to_fs(place)
        system.rm_file(path)


def _write_local(target: Path, content: bytes) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: name a file in it")
    if target.exists() and (not target.is_file() or target.is_relative_to("/dev")):  # a pipe or a device
        with target.open("wb") as file:
            file.write(content)
        return
    target = target.resolve()  # what a link points to is written, and the link stays
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        part.write_bytes(content)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _said(error: Exception, place: str) -> str:
    return str(error).replace(place, display_name(place)) or type(error).__name__


def _fetch(place: str, target: Any) -> None:
    """Copy what is there, all of it."""
    if scheme_of(place) in WEB:
        from gadget_svm.data.http import fetch_web  # here: it takes long to import

        fetch_web(place, target)
        return
    with _open(place, "rb") as source:
        shutil.copyfileobj(source, target)


def _open(place: str, mode: str) -> Any:
    """A file by its URI, to be read or written in bytes."""
    found = _arrow(place)
    if found is None:
        return _fsspec(place).open(place, mode)
    system, path = found
    return (system.open_input_stream if mode == "rb" else system.open_output_stream)(path, compression=None)


def _arrow(place: str) -> tuple[Any, str] | None:
    """pyarrow's file system and the path in it; None without pyarrow, or if it does not know the scheme."""
    try:
        from pyarrow import ArrowException, fs
    except ImportError:
        return None
    if scheme_of(place) in ("gs", "gcs") and "retry_limit_seconds" not in place:
        place += ("&" if "?" in place else "?") + f"retry_limit_seconds={GS_RETRY_SECONDS}"
    try:
        system, path = fs.FileSystem.from_uri(place)
    except (ArrowException, ValueError):
        return None
    return system, path


def _fsspec(place: str) -> Any:
    scheme = scheme_of(place)
    try:
        fsspec = import_module("fsspec")
    except ImportError as error:
        raise ImportError(
            f"{display_name(place)}: {scheme}:// takes pyarrow (s3, gs, hdfs) or fsspec with the package for {scheme}: "
            "pip install 'gadget-svm[parquet]' or 'gadget-svm[remote]', with engine='ray' where the actors run"
        ) from error
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError as error:
        raise ValueError(
            f"{display_name(place)}: no installed package knows {scheme}://: check the spelling, or give a path, or a "
            "URI such as s3://bucket/name (also gs, hdfs, https and the schemes of fsspec's packages)"
        ) from error
    except ImportError as error:
        raise ImportError(f"{display_name(place)}: {scheme}:// needs a package ({error})") from error
    return fsspec
