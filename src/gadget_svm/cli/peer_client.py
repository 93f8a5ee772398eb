"""Talks to peers over their own ports: asks for the status, and lets them leave or export their model."""

import asyncio
import json
import math
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gadget_svm.cli.output import make_table
from gadget_svm.peers.calls import PeerError
from gadget_svm.peers.checkpoint import CheckpointError, Lock
from gadget_svm.peers.config import PeerConfig, load
from gadget_svm.peers.identity import Identity, IdentityError
from gadget_svm.peers.messages import Notice, Status
from gadget_svm.peers.naming import check_endpoint
from gadget_svm.peers.peer import WITHDRAW
from gadget_svm.peers.post import Line, Unreachable
from gadget_svm.peers.running import export_saved
from gadget_svm.peers.vault import VaultError
from gadget_svm.report.formatting import number

STATUS_POLL_S = 1.0
Question = Callable[[Line], Awaitable[Any]]


def show_status(peer: str | None, config: Path | None, as_json: bool, watch: bool) -> None:
    """Print the status of a peer as a table or JSON, once or until Ctrl-C."""
    own, where = _asked_peer(peer, config)
    if as_json:
        typer.echo(json.dumps(_ask(own, where), indent=2))
    elif not watch:
        Console().print(peer_table(_ask(own, where)))
    else:
        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                live.update(peer_table(_ask(own, where)), refresh=True)
                time.sleep(STATUS_POLL_S)


def stop(config: Path, wait_s: float, withdraw: bool) -> None:
    """Ask a peer to leave, and wait until it has."""
    own = load(config)

    try:
        unwritten = _ask(own)["trouble"]
        notice = Notice(own.peer.name, 0, WITHDRAW if withdraw else "gadget peer stop")
        ack = asyncio.run(call(own, own.peer.address, lambda line: line.notice("Stop", notice, 5.0), own.peer.name))
    except (IdentityError, Unreachable) as error:
        raise ValueError(f"{error}{_otherwise(own, withdraw)}") from error
    if ack.status is not Status.OK:
        raise ValueError(ack.text)
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        try:
            _ask(own)
        except Unreachable:
            typer.echo(f"{own.peer.name} has left; its model is {own.peer.model}.")
            for about in ("checkpoint", "model"):
                if about in unwritten:
                    typer.echo(f"warning: {unwritten[about]}", err=True)
            return
        time.sleep(0.3)
    raise OSError(
        f"{own.peer.name} was asked to leave and still answers after {wait_s:g} s: repeat with a longer --wait"
    )


def _otherwise(own: PeerConfig, withdraw: bool) -> str:
    """Return how to stop a peer that does not answer, for example after its certificate expired; empty if none runs."""
    try:
        Lock.acquire(own.peer.state).release()
    except CheckpointError as error:  # another process holds the lock
        if found := re.search(r"process (\d+)", str(error)):
            but = ", though it does not withdraw" if withdraw else ""
            return f". It runs as process {found[1]}: 'kill -TERM {found[1]}' makes it leave as well{but}"
    except OSError:
        pass
    return ""


def export(config: Path) -> Path:
    """Write the model of the last checkpoint; return the file."""
    own = load(config)
    try:
        return export_saved(own)
    except (CheckpointError, VaultError) as error:
        raise ValueError(str(error)) from error
    except PeerError as error:
        raise ValueError(_why_no_model(own) or str(error)) from error


def _asked_peer(peer: str | None, config: Path | None) -> tuple[PeerConfig, str]:
    """Return the configuration whose certificate to use, and the address to ask; a file gives both."""
    usual = Path("peer.toml")
    if peer is None:
        own = load(config or usual)
        return own, own.peer.address
    try:
        where = check_endpoint(peer)
    except ValueError as error:
        if not peer.endswith(".toml") and not Path(peer).exists():
            raise ValueError(f"{error}; nor is there such a file") from error
        asked = load(Path(peer))
        return asked if config is None else load(config), asked.peer.address
    if config is None and not usual.exists():
        raise ValueError(f"{usual} does not exist: name a peer's file with --config, whose certificate {where} trusts")
    return load(config or usual), where


async def call(own: PeerConfig, address: str, question: Question, name: str | None = None) -> Any:
    """Send a question to a peer, with the certificate of ``own``; return its answer."""
    identity = Identity.load(own.tls.cert, own.tls.key, own.tls.ca, own.tls.revoked, own.peer.name)
    line = Line(identity, address, 1, name)
    try:
        return await question(line)
    finally:
        await line.close()


async def status_of(own: PeerConfig, address: str = "", name: str | None = None) -> dict[str, Any]:
    """Return the status of the peer at an address, by default that of ``own``."""
    answer = await call(own, address or own.peer.address, lambda line: line.status(Notice(own.peer.name)), name)
    return dict(json.loads(answer))


def _ask(own: PeerConfig, address: str = "", name: str | None = None) -> dict[str, Any]:
    return asyncio.run(status_of(own, address, name))


def _why_no_model(own: PeerConfig) -> str:
    """Return why a running peer has no model yet; empty if it does not run."""
    try:
        found = _ask(own, name=own.peer.name)
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
    columns = ("neighbour", "heard", "objective", "sent", "received", "failed", "answers in")
    table = make_table(columns, title=f"{found['name']} at {found['address']}")
    for each in found["neighbours"]:
        table.add_row(
            each["name"], _seconds(each["last_heard"]), number(each["objective"]),
            f"{each['sent']:,}", f"{each['received']:,}", f"{each['failures']:,}", _seconds(each["rtt"]),
        )  # fmt: skip
    members = ", ".join(f"{count} {state}" for state, count in found["members"].items() if count)
    lines = [
        f"{found['state']}, tick {found['ticks']:,}, {found['rows']:,} rows of {found['network_rows']:,.0f}; {members}",
        f"objective {number(found['local_objective'])} on its own rows, about {number(found['objective'])} on all; "
        f"estimated gap {_percent(found['gap_estimate'])}, disagreement {_percent(found['disagreement'])}",
        f"{found['messages_sent']:,} messages sent ({found['bytes_sent']:,} bytes), {found['messages_received']:,} "
        f"received ({found['bytes_received']:,} bytes), {sum(found['refused'].values()):,} refused, "
        f"{found['withheld']:,} withheld",
        *([f"keeps the contribution of {', '.join(found['kept'])}, who left"] if found["kept"] else []),
        *(f"{each['name']}: {each['trouble']}" for each in found["neighbours"] if each["trouble"]),
        *(f"{about}: {text}" for about, text in found["trouble"].items()),
    ]
    return Group(table, *map(Text, lines))


def peers_table(peers: Sequence[Any]) -> Any:
    """Return a table of several peers, one line each."""
    columns = ("peer", "tick", "alive", "objective", "est. gap", "disagreement", "accuracy", "sent", "received")
    table = make_table((*columns, "MB sent"), title="peers")
    for peer in peers:
        if not peer.answers:
            table.add_row(peer.name, "-", "no answer")
            continue
        found = peer.status
        accuracy = found["train_accuracy"] if found["test_accuracy"] is None else found["test_accuracy"]
        table.add_row(
            peer.name, f"{found['ticks']:,}", str(found["members"]["alive"]), number(found["objective"]),
            _percent(found["gap_estimate"]), _percent(found["disagreement"]), _percent(accuracy),
            f"{found['messages_sent']:,}", f"{found['messages_received']:,}", f"{found['bytes_sent'] / 1e6:.2f}",
        )  # fmt: skip
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s" if value >= 1 else f"{1000 * value:.1f} ms"
