"""Builds commands with one option for every key of a TOML file, and groups the typed values by section."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from gadget_svm.cli.options import option

_PLACE = re.compile(r"\[(\w+)\] (\w+)(?: =)?")
"""A key as it appears in errors about a file: [section] key, perhaps followed by "="."""


class KeyOption(NamedTuple):
    """The option of a key: its names, its type and its help. If it is not typed, the file has the key's default."""

    names: str
    kind: Any
    help: str


def with_keys(keys: Mapping[str, KeyOption]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each key ("section.key"), in place of its ``**keys``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command, eval_str=True)
        parameters = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        for key, (names, kind, text) in keys.items():
            panel = f"Section {key.partition('.')[0]}"
            kind = Annotated[kind | None, option(names, help=text, panel=panel, show_default=False)]
            parameters.append(Parameter(_name(key), Parameter.KEYWORD_ONLY, default=None, annotation=kind))
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def by_section(
    keys: Mapping[str, KeyOption], values: Mapping[str, Any], folder: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Return the typed values by section and key. Paths become relative to the folder of the file."""
    found: dict[str, dict[str, Any]] = {}
    for key, declared in keys.items():
        section, _, name = key.partition(".")
        value = values[_name(key)]
        if declared.kind is Path and value is not None and folder is not None:
            value = relative(value, folder)
        found.setdefault(section, {})[name] = value
    return found


@contextmanager
def naming_options(keys: Mapping[str, KeyOption]) -> Iterator[None]:
    """Replace keys by options in errors about a file to be written. The key ``name`` becomes the argument NAME."""

    def option(found: re.Match[str]) -> str:
        section, key = found.groups()
        if key == "name":
            return "NAME"
        known = keys.get(f"{section}.{key}")
        return found[0] if known is None else known.names.partition("/")[0]

    try:
        yield
    except ValueError as error:
        text = _PLACE.sub(option, str(error).removeprefix("the new file: "))
        raise type(error)(text.replace(": must ", " must ")) from error


def write_file(out: Path, text: str, overwrite: bool) -> None:
    """Write a new file, and its folder if that is missing."""
    from gadget_svm.study.toml_file import write_new

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise NotADirectoryError(f"--out {out}: a part of that path is a file, not a folder") from None
    write_new(out, text, overwrite)


def relative(path: Path, folder: Path) -> str:
    """Return a path relative to this folder, for a file in the folder. Absolute paths stay absolute."""
    import os

    return str(path) if path.is_absolute() else os.path.relpath(path, folder)


def _name(key: str) -> str:
    return key.replace(".", "_")
