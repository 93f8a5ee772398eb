"""Opens data files: decompression by suffix, and one error for truncated or damaged files. Knows no file format."""

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSION_SUFFIXES = ("", *_OPENERS)


class DataFileError(ValueError):
    """A data file exists but cannot be used: it is truncated, damaged, empty or has the wrong shape.

    If a column cannot be used, ``path`` is its file, and ``column`` its name; None in a file without a header.
    """

    def __init__(self, text: str, path: Path | None = None, column: str | None = None) -> None:
        super().__init__(text)
        self.path, self.column = path, column


def without_compression_suffix(path: Path) -> Path:
    """Return the path without .gz, .bz2 or .xz at its end."""
    return path.with_suffix("") if path.suffix.lower() in _OPENERS else path


def require_file(path: Path) -> None:
    """Raise an error that names the fix if the path is a folder or does not exist."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name the data file inside it")
    if not path.exists():
        raise FileNotFoundError(f"no file {path}: check the spelling, or give the path from {Path.cwd()}")


def damaged(path: Path | str, reason: object) -> DataFileError:
    """Return the error for a file whose bytes cannot be decoded."""
    return DataFileError(f"{path} looks truncated or damaged ({reason}): fetch or copy it again")


@contextmanager
def damage_reported(path: Path) -> Iterator[None]:
    """Turn the errors that decompressors raise on bad bytes into a DataFileError. Disk errors stay as they are."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise damaged(path, error) from error
    except OSError as error:
        if error.errno is not None:  # bz2 and gzip raise an OSError without a number for bad bytes
            raise
        raise damaged(path, error) from error


@contextmanager
def open_data_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, decompressed by its suffix."""
    require_file(path)
    with damage_reported(path), _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
        yield file
