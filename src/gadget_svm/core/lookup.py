"""Look-up by name, with one error message for unknown names, and the order of labels."""

from collections.abc import Hashable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")


def lookup(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return the entry called ``name``. An unknown name raises ValueError, which names the nearest known one."""
    if name in known:
        return known[name]
    raise ValueError(unknown(kind, name, known))


def in_order(labels: Iterable[Hashable]) -> list[Hashable]:
    """Return the distinct labels, sorted; in the order given if they cannot be compared, such as numbers and texts."""
    distinct: list[Any] = list(dict.fromkeys(labels))
    try:
        return sorted(distinct)
    except TypeError:
        return distinct


def require_instance(given: object, base: Any, expected: str, example: str) -> None:
    """Raise TypeError unless ``given`` is an instance of ``base``; the message says what is ``expected``."""
    if isinstance(given, type) or not isinstance(given, base):
        example = f"{given.__name__}()" if isinstance(given, type) else example
        raise TypeError(f"{expected}, such as {example}; got {given!r}")


def unknown(kind: str, name: object, known: Mapping[str, object]) -> str:
    """Return the message for an unknown name: the name, the nearest known one, and all known names."""
    near = get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}.{hint} Known: {', '.join(sorted(known))}."
