"""`gadget peer`: configure, run, watch and stop a site's own process. `peer_client` and `gadget_svm.peers` do it."""

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from gadget_svm.cli.errors import RetryableError
from gadget_svm.cli.options import Json, local_path, option, require_packages
from gadget_svm.cli.peer_demo import demo

peer_app = typer.Typer(help="Peers: one process per site, connected by mTLS.", no_args_is_help=True)
Toml = Annotated[Path, typer.Argument(metavar="PEER.TOML", help="The peer's file, as 'gadget peer new' writes it.")]
OWN_HELP = "The file of the peer whose certificate is used. Default: that of the peer asked, or peer.toml."
Own = Annotated[Path | None, option("--config", metavar="PEER.TOML", help=OWN_HELP)]
Asked = Annotated[str | None, typer.Argument(help="host:port of a peer, or its file. Default: the one of --config.")]
Withdraw = Annotated[bool, option("--withdraw", help="Ask the others to remove the contribution of this site's rows.")]


def require_peer_packages() -> None:
    """Raise an ImportError that names the extra to install, if a package is missing."""
    # gadget_svm.peers first: it sets how much gRPC logs
    modules = ("gadget_svm.peers", "cryptography", "google.protobuf", "grpc", "prometheus_client", "pydantic")
    require_packages("peers", *modules)


def _client() -> ModuleType:
    """Return the module that talks to peers, if all packages are there."""
    require_peer_packages()
    from gadget_svm.cli import peer_client

    return peer_client


@peer_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="The peer's name, as in its certificate.")],
    address: Annotated[str | None, typer.Option(help="The address for other peers, host:port.")] = None,
    join: Annotated[list[str] | None, typer.Option(help="The address of a peer to contact first. Repeatable.")] = None,
    train: Annotated[str | None, typer.Option(help="The file with the site's rows.")] = None,
    lam: Annotated[float | None, typer.Option(help="The regularisation weight, the same at all sites.")] = None,
    listen: Annotated[str | None, typer.Option(help="Where it listens. Default: its port on every interface.")] = None,
    label: Annotated[str | None, typer.Option(help="The label's column, if the file has columns.")] = None,
    test: Annotated[str | None, typer.Option(help="Rows to measure accuracy on.")] = None,
    run: Annotated[str | None, typer.Option(help="The run's name, the same at all sites.")] = None,
    scaling: Annotated[str | None, typer.Option(help="none, max-abs or deviation, the same at all sites.")] = None,
    sites: Annotated[int | None, typer.Option(help="Number of sites whose statistics scaling needs.", min=1)] = None,
    metrics_port: Annotated[int | None, typer.Option(help="A local port for /metrics and /healthz.", min=1)] = None,
    out: Annotated[Path, typer.Option(callback=local_path, help="The file to write.")] = Path("peer.toml"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented peer.toml."""
    given = dict(locals())
    require_peer_packages()
    from gadget_svm.peers.config import template

    if listen is None and address is not None:
        given["listen"] = f"0.0.0.0:{address.rpartition(':')[2]}"
    text = template(port=given.pop("metrics_port"), **{k: given[k] for k in given.keys() - {"out", "overwrite"}})
    try:
        with out.open("w" if overwrite else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ValueError(f"{out} exists: choose another --out, or --overwrite") from None
    typer.echo(f"{out} is written: review it, then 'gadget peer run {out}'.")


@peer_app.command("run")
def run(
    config: Toml = Path("peer.toml"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Start from scratch; the saved state is moved aside.")] = False,
) -> None:
    """Run a peer until Ctrl-C, SIGTERM, the end of its terminal or 'gadget peer stop'; it then leaves and saves its
    state and model."""
    require_peer_packages()
    from gadget_svm.peers.config import load
    from gadget_svm.peers.running import Broken, run_peer

    try:
        raise typer.Exit(run_peer(load(config), fresh))
    except Broken as error:
        raise RetryableError(str(error)) from error


@peer_app.command("status")
def status(
    peer: Asked = None,
    config: Own = None,
    json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every second, until Ctrl-C.")] = False,
) -> None:
    """Show a peer's neighbours, objective, estimated gap, disagreement, messages and bytes."""
    _client().show_status(peer, config, json, watch)


@peer_app.command("stop")
def stop(
    config: Toml = Path("peer.toml"),
    wait: Annotated[float, typer.Option(help="Seconds to wait until it has left.")] = 20.0,
    withdraw: Withdraw = False,
) -> None:
    """Stop a peer: it leaves the network, saves its state and writes its model. The others keep its contribution."""
    _client().stop(config, wait, withdraw)


@peer_app.command("export")
def export_model(config: Toml = Path("peer.toml")) -> None:
    """Write the model of the last checkpoint, whether the peer runs or not."""
    typer.echo(f"{_client().export(config)} is written.")


peer_app.command("demo")(demo)
