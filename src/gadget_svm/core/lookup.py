"""Names: looking things up by name, with one error sentence for an unknown name, and the order of labels."""

from collections.abc import Hashable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")


def lookup(kind: str, name: str, known: Mapping[str, T]) -> T:
    """The entry called ``name``; an unknown one is a ValueError that names the nearest known name."""
    if name in known:
        return known[name]
    raise ValueError(unknown(kind, name, known))


def in_order(labels: Iterable[Hashable]) -> list[Hashable]:
    """The distinct labels, sorted; in the order given if they cannot be compared (numbers and texts, for example)."""
    distinct: list[Any] = list(dict.fromkeys(labels))
    try:
        return sorted(distinct)
    except TypeError:
        return distinct


def unknown(kind: str, name: object, known: Mapping[str, object]) -> str:
    """The sentence for an unknown name: what it was, what was probably meant, what there is."""
    near = get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {name!r}.{hint} Known: {', '.join(sorted(known))}."
