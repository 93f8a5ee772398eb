"""What peers must agree on before they learn together: compared on first contact, and named in every message."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

RUN_BYTES = 16
MOST_CLASSES = 10_000

_WORDS = {
    "run": "the run {}",
    "algorithm": "algorithm {}",
    "lam": "lam = {}",
    "features": "{} features",
    "names": "feature names with the hash {}",
    "classes": "the classes {}",
    "intercept": "intercept = {}",
    "scaling": "scaling {}",
    "sites": "sites = {}",
}
_FIXES = {
    "run": "give both peers the same [learn] run, if they belong together",
    "algorithm": "set [learn] algorithm to the same name at both sites",
    "lam": "set [learn] lam to the same number at both sites",
    "features": "use the same columns at both sites; for svmlight files set [data] features to the full width",
    "names": "use the same columns, in the same order and with the same names, at both sites",
    "classes": "set [data] classes to all labels of all sites, in the same order",
    "intercept": "set [learn] intercept alike at both sites",
    "scaling": "set [learn] scaling alike at both sites",
    "sites": "set [learn] sites, of whose statistics the scale is made, to the same number at both",
}


@dataclass(frozen=True)
class Charter:
    """The terms of a run. Two peers with different ones never exchange a weight."""

    run: str
    algorithm: str
    lam: float
    features: int
    names: str  # hash of the feature names, or "none"
    classes: tuple[str | float, ...]
    intercept: bool
    scaling: str
    sites: int = 0  # of whose statistics the scale is made

    @property
    def outputs(self) -> int:
        """Weight vectors of a model."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def width(self) -> int:
        """Numbers of one weight vector, the intercept's among them."""
        return self.features + self.intercept

    @property
    def dimension(self) -> int:
        """Numbers of a whole model, as it travels."""
        return self.outputs * self.width

    def text(self) -> str:
        """As it is sent: JSON in one fixed form."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def digest(self) -> bytes:
        """The run's id on the wire."""
        return hashlib.sha256(self.text().encode()).digest()[:RUN_BYTES]

    @classmethod
    def parse(cls, text: str) -> "Charter":
        """What another peer sent; anything that is not a charter is a ValueError."""
        try:
            raw = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"the terms are not JSON: {error}") from error
        if not isinstance(raw, dict) or set(raw) != {field.name for field in fields(cls)}:
            raise ValueError("the terms lack a part, or have one that is unknown here: do both run the same version?")
        classes = raw["classes"]
        if not isinstance(classes, list) or not 2 <= len(classes) <= MOST_CLASSES:
            raise ValueError("the terms name no two classes")
        return cls(
            _text(raw["run"]), _text(raw["algorithm"]), _number(raw["lam"]), _count(raw["features"], 1, "features"),
            _text(raw["names"]), tuple(_label(c) for c in classes), raw["intercept"] is True, _text(raw["scaling"]),
            _count(raw["sites"], 0, "sites"),
        )  # fmt: skip


def disagreements(mine: Charter, theirs: Charter, me: str, other: str) -> list[str]:
    """One sentence for every term that differs, with both sides and what to do about it."""
    return [
        f"{me} has {_WORDS[name].format(_short(a))}, {other} has {_WORDS[name].format(_short(b))}: {_FIXES[name]}"
        for name, a, b in ((f.name, getattr(mine, f.name), getattr(theirs, f.name)) for f in fields(Charter))
        if a != b
    ]


def names_hash(columns: tuple[str, ...] | None) -> str:
    """A short hash of the feature names in their order."""
    if columns is None:
        return "none"
    return hashlib.sha256("\x1f".join(columns).encode()).hexdigest()[:16]


def _short(value: Any) -> str:
    shown = [*value[:6], "..."] if isinstance(value, tuple) and len(value) > 6 else value
    text = ", ".join(map(str, shown)) if isinstance(shown, tuple | list) else repr(shown)
    return text[:200]


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise ValueError(f"the terms hold {str(value)[:50]!r} where a short text belongs")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"the terms hold {str(value)[:50]!r} where a number belongs")
    return float(value)


def _count(value: Any, least: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise ValueError(f"the terms hold {str(value)[:50]!r} where a number of {what} belongs")
    return value


def _label(value: Any) -> str | float:
    return _text(value) if isinstance(value, str) else _number(value)
