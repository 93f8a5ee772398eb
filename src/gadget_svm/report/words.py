"""Numbers as words, the same on the page and in the terminal; what is no finite number is a dash."""

import math
from typing import Any


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
