"""Options that several commands share, and commands whose options are the fields of a dataclass."""

from collections.abc import Callable
from dataclasses import field, fields
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from gadget_svm.core.extras import require

Request = TypeVar("Request")


def option(*names: str, help: str, panel: str | None = None, check: Any = None, **more: Any) -> Any:
    """Return an option for `Annotated`; ``check`` may replace the value or raise an error."""
    return typer.Option(*names, help=help, rich_help_panel=panel, callback=check, **more)


def option_field(*names: str, default: Any = None, **options: Any) -> Any:
    """Return a field of a request with its option."""
    return field(default=default, metadata={"option": option(*names, **options)})


def local_path(param: typer.CallbackParam, given: Path | None) -> Path | None:
    """Refuse a URI where only a local path works. Python would take the URI for a folder of that name."""
    from gadget_svm.data.uris import require_local_path

    name = param.opts[0] if param.opts[0].startswith("-") else "this argument"
    return given and require_local_path(given, f"{name} takes a local path: mount it, or copy it first")


def require_packages(what: str, *modules: str) -> None:
    """Raise an ImportError that names the extra to install if a package of the peers is missing."""
    for module in modules:
        require(module, f"{what} need", "peer")


def command_for(request: type[Request]) -> Callable[[Callable[[Request], None]], Callable[..., None]]:
    """Turn a function of one ``request`` into a command: the fields of the dataclass are its arguments and options."""
    hints = get_type_hints(request, include_extras=True)
    for each in fields(request):  # type: ignore[arg-type]
        if "option" in each.metadata:
            hints[each.name] = Annotated[hints[each.name], each.metadata["option"]]
    init = signature(request)
    parameters = [each.replace(annotation=hints[each.name]) for each in init.parameters.values()]

    def decorate(work: Callable[[Request], None]) -> Callable[..., None]:
        def command(**values: Any) -> None:
            work(request(**values))

        command.__name__, command.__doc__, command.__annotations__ = work.__name__, work.__doc__, hints
        command.__signature__ = init.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


DATA = "Data"
DatasetName = Annotated[str, typer.Argument(metavar="NAME", help="A named data set, such as adult.")]
DataDir = Annotated[
    Path | None,
    option("--data-dir", panel=DATA, check=local_path, help="A folder to search first for named data sets."),
]
FormatName = StrEnum("FormatName", "svmlight csv tsv parquet npz")
Format = Annotated[FormatName | None, option("--format", panel=DATA, help="File format. Default: by file extension.")]
Json = Annotated[bool, option("--json", help="Print one JSON value on stdout, and nothing else.")]
Label = Annotated[str | None, option("--label", panel=DATA, help="The label's column in a file, by name or number.")]
POSITIVE_HELP = "The label that becomes +1; all others become -1. Default: the paper's."
Positive = Annotated[str | None, option("--positive", panel=DATA, help=POSITIVE_HELP)]
