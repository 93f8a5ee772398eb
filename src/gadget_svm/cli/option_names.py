"""Error messages in the words of the command line: Python names become the options that were typed.

Owns the table of names. The checks themselves are those of the estimator and its parts.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

OPTIONS: dict[str, tuple[str, ...]] = {
    "C": ("--C",),
    "algorithm": ("--algorithm", "-a"),
    "average": ("--average",),
    "batch_size": ("--batch-size",),
    "checkpoint_dir": ("--checkpoint-dir",),
    "data_dir": ("--data-dir",),
    "engine": ("--engine",),
    "engine_options": ("--engine-option",),
    "faults": ("--fault",),
    "fit_intercept": ("--intercept",),
    "format": ("--format",),
    "gossip": ("--gossip",),
    "gossip_rounds": ("--rounds",),
    "label": ("--label",),
    "lam": ("--lam", "--lambda"),
    "local_steps": ("--local-steps",),
    "max_iter": ("--max-iter",),
    "max_seconds": ("--max-seconds",),
    "multi_class": ("--multi-class",),
    "n_jobs": ("--threads", "-j", "--jobs"),
    "n_nodes": ("--nodes", "-n"),
    "positive": ("--positive",),
    "project": ("--project",),
    "random_state": ("--seed",),
    "record_every": ("--record-every",),
    "stopping": ("--stopping",),
    "test": ("--test",),
    "tol": ("--tol",),
    "topology": ("--topology", "-t"),
}
"""Parameters of Python functions, and the options for them; the first is named unless another was typed."""
ENGINE_OPTIONS = ("address", "actors", "checkpoint_dir", "resume")
"""Options of an engine that are also options of their own."""
SETTINGS = (
    "eta",
    "eta0",
    "gamma",
    "mass",
    "neighbours",
    "passes",
    "penalty",
    "power",
    "recency",
    "solver",
    "theta",
    "transition",
    "window",
)
"""Settings of algorithms that have no option of their own: `--set` gives them."""
NEGATED = {"fit_intercept": "--no-intercept", "average": "--last", "project": "--no-project"}

_VALUE = r"""'[^']*'|"[^"]*"|[\w+-]+(?:\.\d+)*"""
_TYPED = "".join(f"(?<!{option} )" for option in ("--set", "--fault", "--engine-option"))
_PAIR = re.compile(rf"""{_TYPED}(?<![\w'"/.-])({"|".join((*OPTIONS, *ENGINE_OPTIONS, *SETTINGS))})=({_VALUE})?""")
_ALONE = [name for name in OPTIONS if "_" in name or name in ("lam", "tol")]
_BARE = re.compile(rf"""(?<![\w'"/.-])({"|".join(_ALONE)}|C(?= must))(?![\w'"/=-])""")
_FULL = re.compile("|".join(rf"(?<![\w-]){names[0]}(?![\w-])" for names in OPTIONS.values() if len(names) > 1))
_OF_FULL = {names[0]: name for name, names in OPTIONS.items()}
_ENGINE = re.compile(rf"engine option (\w+)(?:=({_VALUE}))?")
_TWICE = re.compile(r"""^(--[\w-]+) (\S+): (?=\1 .*, got ['"]?\2['"]?$)""")
"""An option in front of a sentence that names it, and its value, again."""


def in_options(text: str, typed: Sequence[str] = (), names: bool = True) -> str:
    """The message with options in the place of Python names, spelled as ``typed`` has them.

    ``names=False`` leaves names that stand alone as they are: a data file may have a column of that name.
    """
    text, known, rest = text.partition("Known: ")  # what follows is a list of names to choose from
    text = _ENGINE.sub(lambda found: _engine_option(found[1], found[2], typed), text)
    text = _PAIR.sub(lambda found: _with_value(found[1], found[2], typed), text)
    if names:
        text = _BARE.sub(lambda found: _spelled(found[1], typed), text)
    text = re.sub(r"\boption (?=of engine ')", "--engine-option ", text)
    text = _FULL.sub(lambda found: _spelled(_OF_FULL[found[0]], typed), text)
    text = re.sub(r", or None\b[^),;.]*", "", text).replace("; got", ", got")
    text = _TWICE.sub("", text)
    return re.sub(r"\bNone\b", "none", text) + known + rest


def _spelled(name: str, typed: Sequence[str]) -> str:
    spellings = OPTIONS[name]
    given = {word.partition("=")[0] for word in typed}
    return next((each for each in spellings if each in given), spellings[0])


def _with_value(name: str, value: str | None, typed: Sequence[str]) -> str:
    plain = (value or "").strip("'\"")
    if name in SETTINGS:
        return f"--set {name}={plain}"
    if name in ENGINE_OPTIONS:
        return _engine_option(name, value, typed)
    if name in NEGATED and plain == "False":
        return NEGATED[name]
    option = _spelled(name, typed)
    if name in NEGATED or value is None:
        return option
    return f"{option} {plain.lower() if plain == 'None' else plain}"


def _engine_option(name: str, value: str | None, typed: Sequence[str]) -> str:
    plain = (value or "").strip("'\"")
    given = {word.removeprefix("--engine-option=").partition("=")[0].replace("-", "_") for word in typed if "=" in word}
    if name not in ENGINE_OPTIONS or name in given:
        return f"--engine-option {name}" + f"={plain}" * bool(plain)
    return f"--{name.replace('_', '-')}" + f" {plain.lower()}" * bool(plain)


@contextmanager
def naming(typed: str) -> Iterator[None]:
    """Put what was typed in front of an error about it."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{typed}: {error}") from error
    except ImportError as error:
        raise ImportError(f"{typed}: {error}") from error
