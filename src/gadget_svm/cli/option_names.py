"""Rewrites error messages for the command line: a Python parameter name becomes the option that was typed.

The names come from the declarations of the command's options: an option is stored under the name of the parameter of
the estimator, the algorithm or the function that it sets. Other modules make the checks.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

_VALUE = r"""'[^']*'|"[^"]*"|[\w+-]+(?:\.\d+)*"""
_TYPED = "".join(f"(?<!{option} )" for option in ("--set", "--fault", "--engine-option"))
_ENGINE = re.compile(rf"engine option (\w+)(?:=({_VALUE}))?")
_REPEATED = re.compile(r"""^(--[\w-]+) (\S+): (?=\1 .*, got ['"]?\2['"]?$)""")
"""An option and its value in front of a sentence that names both."""


def in_options(text: str, command: Any = None, typed: Sequence[str] = (), names: bool = True) -> str:
    """Return the message with options instead of Python names, spelled as in ``typed``.

    ``names=False`` does not replace names without a value: a data file may have a column of that name.
    """
    options, negated = _declared(command)
    settings = _algorithm_params(options)
    words = {word.partition("=")[0] for word in typed}
    engine_options = {word.removeprefix("--engine-option=").partition("=")[0].replace("-", "_") for word in typed}

    def spelled(name: str) -> str:
        return next((each for each in options[name] if each in words), options[name][0])

    def with_value(found: re.Match[str]) -> str:
        name, value = found[1], (found[2] or "").strip("'\"")
        if name not in options:
            return f"--set {name}={value}"
        if name in negated:
            return negated[name] if value == "False" else spelled(name)
        value = "none" if value == "None" else value
        return f"{spelled(name)} {value}".rstrip()

    def engine_option(found: re.Match[str]) -> str:
        name, value = found[1], (found[2] or "").strip("'\"")
        if name in options and name not in engine_options:
            return f"{spelled(name)} {value.lower()}".rstrip()
        return f"--engine-option {name}" + f"={value}" * bool(value)

    text, known, rest = text.partition("Known: ")  # a list of names to choose from follows
    text = _ENGINE.sub(engine_option, text)
    if options:
        either = "|".join({*options, *settings})
        text = re.sub(rf"""{_TYPED}(?<![\w'"/.-])({either})=({_VALUE})?""", with_value, text)
        if names:
            alone = "|".join(name for name in options if "_" in name or name in ("lam", "tol"))
            pattern = rf"""(?<![\w'"/.-])({alone or "(?!)"}|C(?= must))(?![\w'"/=-])"""
            text = re.sub(pattern, lambda found: spelled(found[1]) if found[1] in options else found[1], text)
        for name, spellings in options.items():
            text = re.sub(rf"(?<![\w-]){spellings[0]}(?![\w-])", spelled(name), text)
    text = re.sub(r"\boption (?=of engine ')", "--engine-option ", text)
    text = re.sub(r", or None\b[^),;.]*", "", text).replace("; got", ", got")
    text = _REPEATED.sub("", text)
    return re.sub(r"\bNone\b", "none", text) + known + rest


def _declared(command: Any) -> tuple[Mapping[str, Sequence[str]], Mapping[str, str]]:
    """Return the command's options by parameter, and the negative form of those that have one."""
    options = [each for each in getattr(command, "params", []) if each.param_type_name == "option"]
    negated = {each.name: each.secondary_opts[0] for each in options if each.secondary_opts}
    return {each.name: each.opts for each in options}, negated


def _algorithm_params(options: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the parameters of this package's algorithms, if the command sets them with --set."""
    if "settings" not in options:
        return set()
    from gadget_svm.algorithms import ALGORITHMS

    return {name for algorithm in ALGORITHMS.builtin.values() for name in algorithm().get_params()}


@contextmanager
def naming(typed: str) -> Iterator[None]:
    """Put what was typed in front of an error about it."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{typed}: {error}") from error
    except ImportError as error:
        raise ImportError(f"{typed}: {error}") from error
