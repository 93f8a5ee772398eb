"""Puts the command `gadget` together from its subcommands.

Each subcommand has its own module, which imports other packages only when the subcommand runs.
"""

from typing import Annotated

import typer

from gadget_svm.cli.certs import certs_app
from gadget_svm.cli.data import data_app
from gadget_svm.cli.demo import demo
from gadget_svm.cli.errors import CommandGroup
from gadget_svm.cli.peer import peer_app
from gadget_svm.cli.predict import predict
from gadget_svm.cli.reproduce import reproduce
from gadget_svm.cli.study import study_app
from gadget_svm.cli.topology import topology
from gadget_svm.cli.train import train

app = typer.Typer(
    cls=CommandGroup,
    help="Linear support vector machines learned by gossip: every node keeps its rows and shares only weights.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, train, predict, topology, reproduce):
    app.command()(command)
app.add_typer(data_app, name="data")
app.add_typer(certs_app, name="certs")
app.add_typer(study_app, name="study")
app.add_typer(peer_app, name="peer")


def _show_version(wanted: bool) -> None:
    if wanted:
        from gadget_svm import __version__

        typer.echo(f"gadget-svm {__version__}")
        raise typer.Exit


VERSION_HELP = "Show the version and exit."
Version = Annotated[bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help=VERSION_HELP)]


@app.callback()
def gadget(version: Version = False) -> None:
    """Do nothing: the commands do the work."""
