"""`gadget peer`: configure, run, watch and stop a site's own process. `gadget_svm.peers` does the work."""

import math
import time
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gadget_svm.cli.errors import RetryableError
from gadget_svm.cli.options import Json, local_path, require_packages
from gadget_svm.cli.peer_demo import STATUS_POLL_S, demo

if TYPE_CHECKING:
    from gadget_svm.peers.config import PeerConfig
    from gadget_svm.peers.post import Line

peer_app = typer.Typer(help="Peers: one process per site, connected by mTLS.", no_args_is_help=True)
Toml = Annotated[Path, typer.Argument(metavar="PEER.TOML", help="The peer's file, as 'gadget peer new' writes it.")]
Own = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="PEER.TOML",
        help="The file of the peer whose certificate is used. Default: that of the peer asked, or peer.toml.",
    ),
]


def require_peer_packages() -> None:
    """Raise an ImportError that names the extra to install, if a package is missing."""
    # gadget_svm.peers first: it sets how much gRPC logs
    modules = ("gadget_svm.peers", "cryptography", "google.protobuf", "grpc", "prometheus_client", "pydantic")
    require_packages("peers", *modules)


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
    from gadget_svm.peers.running import Broken, run_peer

    try:
        raise typer.Exit(run_peer(_loaded(config), fresh))
    except Broken as error:
        raise RetryableError(str(error)) from error


@peer_app.command("status")
def status(
    peer: Annotated[
        str | None, typer.Argument(help="host:port of a peer, or its file. Default: the one of --config.")
    ] = None,
    config: Own = None,
    json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every second, until Ctrl-C.")] = False,
) -> None:
    """Show a peer's neighbours, objective, estimated gap, disagreement, messages and bytes."""
    require_peer_packages()
    from rich.console import Console

    own, where = _asked_peer(peer, config)
    if json:
        typer.echo(dumps(_ask(own, where), indent=2))
    elif not watch:
        Console().print(peer_table(_ask(own, where)))
    else:
        from rich.live import Live

        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                live.update(peer_table(_ask(own, where)), refresh=True)
                time.sleep(STATUS_POLL_S)


@peer_app.command("stop")
def stop(
    config: Toml = Path("peer.toml"),
    wait: Annotated[float, typer.Option(help="Seconds to wait until it has left.")] = 20.0,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Ask the others to remove the contribution of this site's rows.")
    ] = False,
) -> None:
    """Stop a peer: it leaves the network, saves its state and writes its model. The others keep its contribution."""
    require_peer_packages()
    from gadget_svm.peers.identity import IdentityError
    from gadget_svm.peers.messages import Notice, Status
    from gadget_svm.peers.peer import WITHDRAW
    from gadget_svm.peers.post import Unreachable

    own = _loaded(config)

    async def ask(line: "Line") -> None:
        reason = WITHDRAW if withdraw else "gadget peer stop"
        ack = await line.notice("Stop", Notice(own.peer.name, 0, reason), 5.0)
        if ack.status is not Status.OK:
            raise ValueError(ack.text)

    try:
        unwritten = _ask(own, own.peer.address)["trouble"]
        _talk(own, own.peer.address, ask, own.peer.name)
    except (IdentityError, Unreachable) as error:
        raise ValueError(f"{error}{_other_ways_to_stop(own, withdraw)}") from error
    until = time.monotonic() + wait
    while time.monotonic() < until:
        try:
            _ask(own, own.peer.address)
        except Unreachable:
            typer.echo(f"{own.peer.name} has left; its model is {own.peer.model}.")
            for about in ("checkpoint", "model"):
                if about in unwritten:
                    typer.echo(f"warning: {unwritten[about]}", err=True)
            return
        time.sleep(0.3)
    raise OSError(f"{own.peer.name} was asked to leave and still answers after {wait:g} s: repeat with a longer --wait")


def _other_ways_to_stop(own: "PeerConfig", withdraw: bool) -> str:
    """Return how to stop a peer that does not answer, for example after its certificate expired; empty if none runs."""
    from gadget_svm.peers.checkpoint import CheckpointError, Lock

    try:
        number = int((own.peer.state / "lock").read_text(encoding="utf-8"))
        Lock.acquire(own.peer.state).release()
    except CheckpointError:  # that process holds the lock
        but = ", though it does not withdraw" if withdraw else ""
        return f". It runs as process {number}: 'kill -TERM {number}' makes it leave as well{but}"
    except (OSError, ValueError):
        pass
    return ""


@peer_app.command("export")
def export_model(config: Toml = Path("peer.toml")) -> None:
    """Write the model of the last checkpoint, whether the peer runs or not."""
    require_peer_packages()
    from gadget_svm.peers.calls import PeerError
    from gadget_svm.peers.checkpoint import CheckpointError
    from gadget_svm.peers.running import export_saved
    from gadget_svm.peers.vault import VaultError

    own = _loaded(config)
    try:
        written = export_saved(own)
    except (CheckpointError, VaultError) as error:
        raise ValueError(str(error)) from error
    except PeerError as error:
        raise ValueError(_why_no_model(own) or str(error)) from error
    typer.echo(f"{written} is written.")


peer_app.command("demo")(demo)


def _loaded(path: Path) -> "PeerConfig":
    from gadget_svm.peers.config import load

    return load(path)


def _asked_peer(peer: str | None, config: Path | None) -> tuple["PeerConfig", str]:
    """Return the configuration whose certificate to use, and the address to ask; a file gives both."""
    from gadget_svm.peers.naming import check_endpoint

    usual = Path("peer.toml")
    if peer is None:
        own = _loaded(config or usual)
        return own, own.peer.address
    try:
        where = check_endpoint(peer)
    except ValueError as error:
        if not peer.endswith(".toml") and not Path(peer).exists():
            raise ValueError(f"{error}; there is no such file either") from error
        asked = _loaded(Path(peer))
        return asked if config is None else _loaded(config), asked.peer.address
    if config is None and not usual.exists():
        raise ValueError(f"{usual} does not exist: name a peer's file with --config, whose certificate {where} trusts")
    return _loaded(config or usual), where


def _talk(own: "PeerConfig", address: str, question: Any, name: str | None = None) -> Any:
    """Send a question to a peer, with the certificate of ``own``; return its answer."""
    import asyncio

    from gadget_svm.peers.identity import Identity
    from gadget_svm.peers.post import Line

    identity = Identity.load(own.tls.cert, own.tls.key, own.tls.ca, own.tls.revoked, own.peer.name)

    async def call() -> Any:
        line = Line(identity, address, 1, name)
        try:
            return await question(line)
        finally:
            await line.close()

    return asyncio.run(call())


def _ask(own: "PeerConfig", address: str, name: str | None = None) -> dict[str, Any]:
    from gadget_svm.peers.messages import Notice

    async def ask(line: "Line") -> str:
        return await line.status(Notice(own.peer.name))

    found: dict[str, Any] = loads(_talk(own, address, ask, name))
    return found


def _why_no_model(own: "PeerConfig") -> str:
    """Return why a running peer has no model yet; empty if it does not run."""
    from gadget_svm.peers.post import Unreachable

    try:
        found = _ask(own, own.peer.address, own.peer.name)
    except Unreachable:
        return ""
    if found["state"] != "learning":
        return f"{own.peer.name} runs, but has no model yet: it is {found['state']}"
    if "checkpoint" in found["trouble"]:
        return f"{own.peer.name} runs, but has saved no model: {found['trouble']['checkpoint']}"
    due = math.ceil(max(own.pace.checkpoint - (found["checkpoint_age"] or 0.0), 1.0))
    return f"{own.peer.name} runs, but has saved no model yet: it will in about {due} s, ask again then"


def peer_table(found: dict[str, Any]) -> Any:
    """Return one peer in full: its neighbours, with lines about itself below."""
    from rich.console import Group
    from rich.text import Text

    from gadget_svm.cli.output import make_table

    columns = ("neighbour", "heard", "objective", "sent", "received", "failed", "answers in")
    table = make_table(columns, title=f"{found['name']} at {found['address']}")
    for each in found["neighbours"]:
        table.add_row(
            each["name"], _seconds(each["last_heard"]), _number(each["objective"]),
            f"{each['sent']:,}", f"{each['received']:,}", f"{each['failures']:,}", _seconds(each["rtt"]),
        )  # fmt: skip
    members = ", ".join(f"{count} {state}" for state, count in found["members"].items() if count)
    lines = [
        f"{found['state']}, tick {found['ticks']:,}, {found['rows']:,} rows of {found['network_rows']:,.0f}; {members}",
        f"objective {_number(found['local_objective'])} on its own rows, about {_number(found['objective'])} on all; "
        f"estimated gap {_percent(found['gap_estimate'])}, disagreement {_percent(found['disagreement'])}",
        f"{found['messages_sent']:,} messages sent ({found['bytes_sent']:,} bytes), {found['messages_received']:,} "
        f"received ({found['bytes_received']:,} bytes), {sum(found['refused'].values()):,} refused, "
        f"{found['withheld']:,} withheld",
        *([f"keeps the contribution of {', '.join(found['kept'])}, who left"] if found["kept"] else []),
        *(f"{each['name']}: {each['trouble']}" for each in found["neighbours"] if each["trouble"]),
        *(f"{about}: {text}" for about, text in found["trouble"].items()),
    ]
    return Group(table, *map(Text, lines))


def peers_table(rows: list[dict[str, Any] | None], names: list[str]) -> Any:
    """Return a table of several peers, one line each; None for one that does not answer."""
    from gadget_svm.cli.output import make_table

    columns = ("peer", "tick", "alive", "objective", "est. gap", "disagreement", "accuracy", "sent", "received")
    table = make_table((*columns, "MB sent"), title="peers")
    for name, found in zip(names, rows, strict=True):
        if found is None:
            table.add_row(name, "-", "no answer")
            continue
        accuracy = found["train_accuracy"] if found["test_accuracy"] is None else found["test_accuracy"]
        table.add_row(
            name, f"{found['ticks']:,}", str(found["members"]["alive"]), _number(found["objective"]),
            _percent(found["gap_estimate"]), _percent(found["disagreement"]), _percent(accuracy),
            f"{found['messages_sent']:,}", f"{found['messages_received']:,}", f"{found['bytes_sent'] / 1e6:.2f}",
        )  # fmt: skip
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s" if value >= 1 else f"{1000 * value:.1f} ms"
