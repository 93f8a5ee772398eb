"""What all sites of a study agree on, as a value: its text, its digest, and where two studies differ.

Owns the canonical text, which is sent to other peers, and its bounds. Refuses any text that it would not have written.
Reads no files: `study_file` does.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

from gadget_svm.privacy import DifferentialPrivacy

FORMAT = 1
MAX_TEXT_BYTES = 2_000_000
MAX_FEATURES = 2**31 - 1
MAX_CLASSES, MAX_SITES, MAX_DEGREE, MAX_NAME = 10_000, 10_000, 1_000, 200
MAX_COLUMNS_NAMED, MAX_COMPARED = 5, 100
SITE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")

Algorithm = Literal["pdmm", "gadget", "private"]
Scaling = Literal["none", "max-abs", "deviation"]
Label = str | float

KEYS = {
    "name": "[study] name", "algorithm": "[learn] algorithm", "lam": "[learn] lam", "intercept": "[learn] intercept",
    "n_features": "[data] features", "columns": "[data] columns", "classes": "[data] classes",
    "scaling": "[scaling] kind", "scaling_sites": "[scaling] sites", "degree": "[learn] degree", "gap": "[end] gap",
    "sites": "[end] sites", "min_sites": "[end] min_sites", "epsilon": "[privacy] epsilon", "delta": "[privacy] delta",
    "clip": "[privacy] clip", "rounds": "[privacy] rounds", "step_size": "[privacy] step_size",
}  # fmt: skip
"""The key of study.toml that sets each field."""
PRIVATE = ("epsilon", "delta", "clip", "rounds", "step_size")
"""The fields of a private study, and of no other."""
MAX_ROUNDS = 1_000_000


@dataclass(frozen=True)
class Study:
    """What all sites agree on. Peers of different studies exchange no weights.

    Attributes
    ----------
    n_features, columns
        The number of features, and their names in order; None if the files have no names.
    classes
        All labels of all sites, in order. Numbers are floats.
    scaling, scaling_sites
        How features are scaled, and the number of sites whose statistics that needs (0 without scaling).
    degree
        Neighbours of a peer.
    gap
        The study ends when the relative gap is certified to be at most this.
    sites, min_sites
        The sites that an ending certificate must cover; if there are no names, their least number.
    epsilon, delta, clip, rounds, step_size
        The budget of a private study and how it is spent, see `privacy.DifferentialPrivacy` and `privacy.Plan`; None in
        any other study.
    """

    name: str
    lam: float
    n_features: int
    classes: tuple[Label, ...]
    algorithm: Algorithm = "pdmm"
    intercept: bool = True
    columns: tuple[str, ...] | None = None
    scaling: Scaling = "none"
    scaling_sites: int = 0
    degree: int = 4
    gap: float = 0.01
    sites: tuple[str, ...] = ()
    min_sites: int = 1
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    rounds: int | None = None
    step_size: float | None = None

    @property
    def is_private(self) -> bool:
        """Whether everything that a site sends keeps a privacy budget."""
        return self.algorithm == "private"

    def budget(self, noise: str = "secret") -> DifferentialPrivacy:
        """Return the budget of a private study, with noise from where `DifferentialPrivacy` says."""
        own: Any = self
        return DifferentialPrivacy(own.epsilon, own.delta, own.clip, own.rounds, noise)

    @property
    def outputs(self) -> int:
        """Weight vectors of a model."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def width(self) -> int:
        """Numbers of one weight vector, the intercept included."""
        return self.n_features + self.intercept

    @property
    def dimension(self) -> int:
        """Numbers of a whole model, as it is sent."""
        return self.outputs * self.width

    def text(self) -> str:
        """Return the study as JSON in one fixed form."""
        return self._text

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the text."""
        return hashlib.sha256(self._text.encode()).digest()

    @cached_property
    def _text(self) -> str:
        values = asdict(self) | {"format": FORMAT, "lam": float(self.lam), "gap": float(self.gap)}
        values |= {name: float(values[name]) for name in PRIVATE if name != "rounds" and values[name] is not None}
        values["classes"] = [each if isinstance(each, str) else float(each) for each in self.classes]
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def parse(cls, text: str) -> "Study":
        """Read the text of another peer.

        Raises
        ------
        ValueError
            The text is too long, or is not one that `text` returns.
        """
        if len(text) > MAX_TEXT_BYTES:
            raise ValueError(f"the study has {len(text):,} characters, more than {MAX_TEXT_BYTES:,}")
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the study is not JSON: {str(error)[:100]}") from error
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise ValueError(f"the study is not of format {FORMAT}: install the same version at both sites")
        if set(values) != set(KEYS):
            raise ValueError("the study lacks a field or has an unknown one: install the same version at both sites")
        for name in ("classes", "sites", "columns"):
            if isinstance(values[name], list):
                values[name] = tuple(values[name])
        study = cls(**values)
        if wrong := next(problems(study), None):
            raise ValueError(f"the study's {wrong}")
        if study.text() != text:
            raise ValueError("the study is not in its canonical form")
        return study


def problems(study: Study) -> Iterator[str]:
    """Yield what is wrong with the values of a study, field by field; nothing for a good one."""
    types: dict[str, tuple[Any, int]] = {"n_features": (1, MAX_FEATURES), "degree": (2, MAX_DEGREE)}
    types |= {"scaling_sites": (0, MAX_SITES), "min_sites": (1, MAX_SITES)}
    for name, (least, most) in types.items():
        value = getattr(study, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            yield f"{name} must be a whole number from {least} to {most:,}, got {shown(value)}"
    if isinstance(study.degree, int) and study.degree % 2:
        yield f"degree must be even, got {study.degree}"
    for name in ("lam", "gap"):
        value = getattr(study, name)
        if not _is_number(value) or value <= 0:
            yield f"{name} must be a number above 0, got {shown(value)}"
    for name, known in (("algorithm", get_args(Algorithm)), ("scaling", get_args(Scaling))):
        if getattr(study, name) not in known:
            yield f"{name} must be one of {', '.join(known)}, got {shown(getattr(study, name))}"
    intercept: Any = study.intercept
    if not isinstance(intercept, bool):
        yield f"intercept must be true or false, got {shown(intercept)}"
    if not _is_name(study.name, 64) or not study.name.isprintable():
        yield f"name must be 1 to 64 printable characters, got {shown(study.name)}"
    yield from _list_problems("classes", study.classes, 2, MAX_CLASSES, lambda v: _is_number(v) or _is_name(v))
    yield from _list_problems("sites", study.sites, 0, MAX_SITES, lambda v: _is_name(v) and SITE_NAME.fullmatch(v))
    if study.columns is not None:
        yield from _list_problems("columns", study.columns, 1, MAX_FEATURES, _is_name)
        if isinstance(study.columns, tuple) and len(study.columns) != study.n_features:
            yield f"n_features is {shown(study.n_features)}, but {len(study.columns)} columns are named"
    if study.scaling != "none" and study.scaling_sites == 0:
        yield f"scaling {shown(study.scaling)} needs the number of sites whose statistics it waits for"
    yield from _privacy_problems(study)


def differences(mine: Study, theirs: Study, me: str, other: str) -> list[str]:
    """Return a sentence for every field and column that differs, with both values and the fix."""
    found = []
    for name in (field.name for field in fields(Study)):
        a, b = getattr(mine, name), getattr(theirs, name)
        if a == b or (name == "n_features" and mine.columns and theirs.columns):  # the columns say more
            continue
        key = KEYS[name]
        if name == "columns" and a and b:
            found += [
                f"{text}: use the same {key} in both study.toml files" for text in column_differences(a, b, me, other)
            ]
        else:
            found.append(
                f"{me} has {key} = {shown(a)}, {other} has {shown(b)}: use the same {key} in both study.toml files"
            )
    return found


def column_differences(mine: Sequence[str], theirs: Sequence[str], me: str, other: str) -> Iterator[str]:
    """Yield how two lists of columns differ: columns that one side lacks, else the first that changed places."""
    for names, others, has, lacks in ((mine, theirs, me, other), (theirs, mine, other, me)):
        known = set(others)
        missing = [name for name in names if name not in known]
        for name in missing[:MAX_COLUMNS_NAMED]:
            near = _similar(name, [each for each in others if each not in set(names)])
            yield f"{has} has a column {shown(name)}, {lacks} does not{near}"
        if len(missing) > MAX_COLUMNS_NAMED:
            yield f"{has} has {len(missing) - MAX_COLUMNS_NAMED} more columns that {lacks} does not have"
    if set(mine) == set(theirs):
        for i, (a, b) in enumerate(zip(mine, theirs, strict=False), 1):
            if a != b:
                yield f"column {i} is {shown(a)} at {me} and {shown(b)} at {other}: the order differs"
                return


def plain_label(value: Any) -> Label:
    """Return a label as it is compared between sites: 1, 1.0 and "1" of another file format are the same."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return str(value)
    return number if math.isfinite(number) else str(value)


def shown(value: Any) -> str:
    """Return a value of another peer as a short text that is safe to print."""
    if isinstance(value, tuple | list):
        more = f", ... ({len(value)} in all)" if len(value) > 6 else ""
        return f"[{', '.join('[...]' if isinstance(each, tuple | list) else shown(each) for each in value[:6])}{more}]"
    if isinstance(value, dict):
        return "{...}"
    text = repr(value)  # escapes what is not printable
    return text if len(text) <= 80 else text[:77] + "..."


def _privacy_problems(study: Study) -> Iterator[str]:
    if study.algorithm != "private":
        for name in PRIVATE:
            if getattr(study, name) is not None:
                yield f"{name} must be left out, or the algorithm must be private: other algorithms keep no budget"
        return
    for name in PRIVATE:
        value = getattr(study, name)
        if value is None:
            yield f"{name} must be set in a private study: 'gadget study new --epsilon 1 --rows-expected N' plans it"
            return
        elif name == "rounds":
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ROUNDS:
                yield f"rounds must be a whole number from 1 to {MAX_ROUNDS:,}, got {shown(value)}"
        elif not _is_number(value) or value <= 0:
            yield f"{name} must be a number above 0, got {shown(value)}"
        elif name == "delta" and value >= 0.1:
            yield f"delta must be far below 1 / rows, such as 1e-6, got {shown(value)}"
    if study.scaling != "none":
        yield (
            f"scaling must be none in a private study, got {shown(study.scaling)}: statistics of rows are not in the "
            "budget. Scale by constants that do not depend on the rows"
        )


def _similar(name: str, others: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, others[:MAX_COMPARED], n=1, cutoff=0.7)
    return f" (it has {shown(near[0])})" if near else ""


def _list_problems(name: str, values: Any, least: int, most: int, is_good: Any) -> Iterator[str]:
    if not isinstance(values, tuple) or not least <= len(values) <= most:
        yield f"{name} must be a list of {least} to {most:,} entries, got {shown(values)}"
        return
    if wrong := [value for value in values if not is_good(value)]:
        yield f"{name} must not hold {shown(wrong[0])}"
    elif len(set(values)) < len(values):
        seen: set[Any] = set()
        twice = next(value for value in values if value in seen or seen.add(value))  # type: ignore[func-returns-value]
        yield f"{name} must hold each entry once, and {shown(twice)} is there twice"


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _is_name(value: Any, most: int = MAX_NAME) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= most and not any("\ud800" <= c <= "\udfff" for c in value)


def as_study(values: dict[str, Any]) -> Study:
    """Return a study of checked values.

    Raises
    ------
    ValueError
        A value is wrong; the message names its key in study.toml.
    """
    study = Study(**values)
    found = [f"{KEYS[text.split(' ', 1)[0]]}: {text.split(' ', 1)[1]}" for text in problems(study)]
    if not found and len(study.text()) > MAX_TEXT_BYTES:
        found = [f"[data] columns: the names are too long to be sent: set [data] features to {study.n_features}"]
    if found:
        raise ValueError("; ".join(found))
    return study
