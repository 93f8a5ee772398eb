"""TOML files with pydantic models: reading with clear errors, and commented templates made from the fields.

Owns the wording of the errors: each names the file, the key, the fault and what is allowed. Reads one file at a time.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from gadget_svm.core.lookup import unknown

Values = Mapping[str, Mapping[str, Any]]
"""Values by section and key."""


class ConfigError(ValueError):
    """A TOML file cannot be used. The message names the file, the key, the fault and what is allowed."""


class Section(BaseModel):
    """A section of a TOML file: every key is known and every value has the right type. Values cannot be changed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=True)


File = TypeVar("File", bound=Section)


def _absolute(path: Path, info: ValidationInfo) -> Path:
    """Return the path, taken relative to the folder of the file, not to the folder where the program was started."""
    folder: Path = (info.context or {}).get("folder", Path())
    return folder / path.expanduser()


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a list that holds an entry twice."""
    if len(set(values)) < len(values):
        raise ValueError("each only once")
    return values


Where = Annotated[Path, Field(strict=False), AfterValidator(_absolute)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


def load_toml(path: str | Path, kind: str, model: type[File], older: Mapping[str, str] | None = None) -> File:
    """Read a TOML file; relative paths in it are relative to its folder. Its errors are ConfigErrors.

    Parameters
    ----------
    kind
        What the file should be, such as "peer.toml".
    older
        Sections and keys ("section.key") of older formats, with the fix.
    """
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{source} does not exist: name a {kind}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{source} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8"
        ) from error
    except OSError as error:
        raise ConfigError(f"{source} cannot be read ({error.strerror}): name a {kind}") from error
    return parse_toml(text, str(source), source.parent.absolute(), model, older)


def parse_toml(text: str, source: str, folder: Path, model: type[File], older: Mapping[str, str] | None = None) -> File:
    """Read the text of a TOML file; ``source`` is its name in errors."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        end = f"at line {text.rstrip().count(chr(10)) + 1}, the last"
        raise ConfigError(f"{source}: {str(error).replace('at end of document', end)}") from error
    for place, fix in (older or {}).items():
        section, _, key = place.partition(".")
        if section in values and (not key or key in values[section]):
            raise ConfigError(f"{source} has an older format ([{section}]{f' {key}' if key else ''}): {fix}")
    try:
        return model.model_validate(values, context={"folder": folder})
    except ValidationError as error:
        found = (_sentence(each, sections_of(model)) for each in error.errors())
        raise ConfigError(f"{source}: " + "; ".join(dict.fromkeys(found))) from error


def sections_of(model: type[Section]) -> dict[str, type[Section]]:
    """Return the sections of a file by name."""
    return {name: field.annotation for name, field in model.model_fields.items()}  # type: ignore[misc]


def template(model: type[Section], values: Values) -> str:
    """Return a commented file with these values, and with defaults for the others.

    Raises
    ------
    ConfigError
        A key is unknown, or `load_toml` would refuse the file.
    """
    sections = sections_of(model)
    for section, given in values.items():
        for key in given:
            if key not in sections[section].model_fields:
                raise ConfigError(f"[{section}] " + unknown("key", key, sections[section].model_fields))
    lines = [line for name in sections for line in (*_lines(name, sections[name], values.get(name, {})), "")]
    text = "\n".join(lines).rstrip() + "\n"
    parse_toml(text, "the new file", Path(), model)
    return text


def write_new(path: Path, text: str, overwrite: bool) -> None:
    """Write a file; an existing one is replaced only with ``overwrite``."""
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists: choose another --out, or --overwrite") from None


def _lines(section: str, model: type[Section], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a section: its keys with values or defaults. Optional keys without a value are comments."""
    yield f"[{section}]"
    for key, about in model.model_fields.items():
        value = given.get(key)
        value = about.default if value is None else value
        if value is PydanticUndefined:
            continue  # parse_toml says that it is missing
        line = f"{key} = {_toml(value if value is not None else (about.examples or [''])[0])}  # {about.description}"
        yield line if value is not None else f"# {line}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _sentence(error: ErrorDetails, sections: Mapping[str, type[Section]]) -> str:
    """Return a text about one fault: where it is, what is wrong, and what is allowed."""
    section = str(error["loc"][0]) if error["loc"] else ""
    key = str(error["loc"][1]) if len(error["loc"]) > 1 else ""
    place = f"[{section}] {key}".strip() if section else ""
    match error["type"]:
        case "extra_forbidden" if key:
            return f"[{section}] " + unknown("key", key, sections[section].model_fields).rstrip(".")
        case "extra_forbidden":
            return unknown("section", section, sections).rstrip(".")
        case "missing":
            return f"{place} is missing"
        case "value_error":
            text = str(error["ctx"]["error"])
            return f"{place}: {text}" if place and f"[{section}] " not in text else text
        case "model_type":
            return f"{place} must be a section with keys of its own, got {error['input']!r}"
    return f"{place}: {error['msg'].replace('Input should', 'must')}, got {error['input']!r}"
