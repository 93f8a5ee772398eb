"""Numbers as words, the same on the page and in the terminal; what is no finite number is a dash."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

MOST_EVENTS = 20
"""Losses and returns that are told one by one."""


def finite(value: Any, factor: float = 1.0) -> float | None:
    """The number times the factor; None for whatever is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value * factor


def percent(share: Any) -> str:
    """0.97 is 97.00 %."""
    return "-" if finite(share) is None else f"{100 * share:.2f} %"


def at_most(share: float) -> str:
    """A bound in per cent, never rounded down: 0.00681 is 0.69 %."""
    if share <= 0:
        return "0 %"
    unit = 10.0 ** (math.floor(math.log10(100 * share)) - 1)
    return f"{math.ceil(100 * share / unit - 1e-9) * unit:.2g} %"


def number(value: Any, digits: int = 5) -> str:
    """A few digits."""
    return "-" if finite(value) is None else f"{value:.{digits}g}"


def count(value: Any) -> str:
    """A whole number with its thousands apart."""
    return "-" if finite(value) is None else f"{value:,.0f}"


def size(nbytes: Any) -> str:
    """Bytes in the unit that suits them."""
    if finite(nbytes) is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB"


def describe_losses(history: Iterable[Mapping[str, Any]]) -> str:
    """Who was lost on the way and who came back, and what could not be saved, in one line; nothing if nothing was."""
    said: list[str] = []
    away: dict[int, int] = {}  # actors, and where it is said of them
    for event in (event for record in history for event in record.get("events", [])):
        actor, (first, last), at = event["actor"], event["nodes"], f"at iteration {event['iteration']:,}"
        who = f"actor {actor} with " + (f"node {first}" if first == last else f"nodes {first} to {last}")
        if event["event"] == "lost":
            away[actor] = len(said)
            said.append(f"{who} was lost {at} ({event['why']})")
        elif event["event"] == "restarted" and actor in away:
            said[away.pop(actor)] += f", back {at}"
        elif event["event"] == "restarted":  # lost before the run was resumed
            said.append(f"{who} came back {at}")
        elif event["event"] == "checkpoint failed":
            said.append(f"a checkpoint could not be written {at} ({event['why']})")
    for place in away.values():
        said[place] += ", not back"
    more = f"; and {len(said) - MOST_EVENTS:,} more" if len(said) > MOST_EVENTS else ""
    return f"On the way: {'; '.join(said[:MOST_EVENTS])}{more}." if said else ""
