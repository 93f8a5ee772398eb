"""Rewrites error messages for the command line: a Python parameter name becomes the option that was typed.

The names come from the declarations of the command's options: an option has the name of the parameter that it sets in
the estimator, the algorithm or the function. Other modules make the checks.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_NOT_TYPED = "".join(f"(?<!{option} )" for option in ("--set", "--fault", "--engine-option"))
_VALUE = r"""'[^']*'|"[^"]*"|[\w+-]+(?:\.\d+)*"""
_NAME = re.compile(
    rf"""{_NOT_TYPED}(?<![\w'"/.-])(?P<engine>engine option )?(?P<name>[A-Za-z]\w*)"""
    rf"""(?:(?P<assigned>=)(?P<value>{_VALUE})?|(?![\w'"/=-]))"""
)
"""A possible parameter name, alone or before "=VALUE". Not in quotes or a path, and not the value of an option."""
_REPEATED = re.compile(r"""^(--[\w-]+) (\S+): (?=\1 .*, got ['"]?\2['"]?$)""")
"""An option and its value in front of a sentence that names both again."""
_CALL = re.compile(r"\b(Gadget|Pdmm)\((--[^()]*)\)")
"""An algorithm whose parameters have been replaced by options."""


def in_options(text: str, command: Any = None, typed: Sequence[str] = (), names: bool = True) -> str:
    """Return the message with options instead of Python names, spelled as in ``typed``.

    ``names=False`` does not replace names without a value: a data file may have a column of that name.
    """
    options = {each.name: each for each in getattr(command, "params", ()) if each.param_type_name == "option"}
    for each in list(options.values()):  # of a file's key: data_label is --label
        key = each.name.partition("_")[2]
        if each.opts[0] == f"--{key.replace('_', '-')}":
            options.setdefault(key, each)
    words = {word.partition("=")[0] for word in typed}
    engine_options = {word.removeprefix("--engine-option=").partition("=")[0].replace("-", "_") for word in typed}

    def spelled(name: str) -> str:
        spellings: list[str] = options[name].opts
        return next((each for each in spellings if each in words), spellings[0])

    def as_option(found: re.Match[str]) -> str:
        name, value = found["name"], (found["value"] or "").strip("'\"")
        if found["engine"] and (name in engine_options or name not in options):
            return f"--engine-option {name}" + f"={value}" * bool(value)
        if name not in options:
            return f"--set {name}={value}" if found["assigned"] and name in _algorithm_params(options) else found[0]
        if not (found["engine"] or found["assigned"] or (names and _is_no_word(name, found))):
            return found[0]
        if negative := options[name].secondary_opts:
            return str(negative[0]) if value == "False" else spelled(name)
        return f"{spelled(name)} {value.lower() if found['engine'] or value == 'None' else value}".rstrip()

    text, known, rest = text.partition("Known: ")  # a list of names to choose from follows
    for name, each in options.items():
        text = re.sub(rf"(?<![\w-]){each.opts[0]}(?![\w-])", spelled(name), text)
    text = _NAME.sub(as_option, text)
    text = _CALL.sub(lambda found: f"--algorithm {found[1].lower()} {found[2].replace(',', '')}", text)
    text = re.sub(r"\boption (?=of engine ')", "--engine-option ", text)
    text = re.sub(r", or None\b[^),;.]*", "", text).replace("; got", ", got")
    text = _REPEATED.sub("", text)
    return re.sub(r"\bNone\b", "none", text) + known + rest


def _is_no_word(name: str, found: re.Match[str]) -> bool:
    """Return whether a name without a value must be the parameter, and cannot be a normal word of the sentence."""
    return "_" in name or name in ("lam", "tol") or (name == "C" and found.string.startswith(" must", found.end()))


def _algorithm_params(options: Any) -> set[str]:
    """Return the parameters of this package's algorithms, if the command sets them with --set."""
    if "settings" not in options:
        return set()
    from gadget_svm.algorithms import ALGORITHMS

    return {name for algorithm in ALGORITHMS.builtin.values() for name in algorithm().get_params()}


@contextmanager
def naming(typed: str) -> Iterator[None]:
    """Put the words that were typed in front of an error about them."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{typed}: {error}") from error
    except (ImportError, OSError) as error:
        raise type(error)(f"{typed}: {error}") from error
