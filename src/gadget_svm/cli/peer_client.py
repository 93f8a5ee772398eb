"""Talks to peers over their own ports: shows the status, and lets them leave. Exports the model of a snapshot."""

import json
import random
import re
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gadget_svm.cli.errors import RetryableError
from gadget_svm.cli.output import gap_at_most, make_table
from gadget_svm.cli.signals import Terminated
from gadget_svm.core.file_lock import lock_file
from gadget_svm.estimator import load_model
from gadget_svm.peers import events as ev
from gadget_svm.peers.names import check_endpoint
from gadget_svm.peers.node import Node
from gadget_svm.peers.process.config import PeerConfig, load
from gadget_svm.peers.process.control import UnreachableError, fetch_status, request_stop
from gadget_svm.peers.process.ledger_file import LedgerFile
from gadget_svm.peers.process.model_export import write_model
from gadget_svm.peers.process.site_files import load_site
from gadget_svm.peers.process.snapshot_store import SnapshotError, SnapshotStore
from gadget_svm.peers.security.errors import CredentialsError
from gadget_svm.peers.storage.ledger import Ledger
from gadget_svm.peers.storage.snapshot import ModelDocument, Snapshot
from gadget_svm.report.formatting import number
from gadget_svm.study.study import Study
from gadget_svm.study.study_file import load_study

STATUS_INTERVAL_S, POLL_INTERVAL_S = 1.0, 0.3


def load_files(config: Path) -> tuple[PeerConfig, Study]:
    """Read a peer.toml and the study that it names."""
    own = load(config)
    if missing := own.missing():
        raise ValueError("; ".join(missing))
    return own, load_study(own.peer.study)


def show_status(peer: str | None, config: Path | None, as_json: bool, watch: bool) -> None:
    """Print the status of a peer as a table or JSON, once or until Ctrl-C."""
    own, address, file = _asked_peer(peer, config)
    name = None if file is None else load(file).peer.name  # then its certificate need not be for the address

    def fetch() -> dict[str, Any]:
        try:
            return fetch_status(own, address, name)
        except UnreachableError as error:
            raise (file and _not_running(file)) or error from error

    if watch:
        _watch(fetch, as_json)
    elif as_json:
        typer.echo(json.dumps(fetch(), indent=2))
    else:
        Console().print(peer_table(fetch()))


def _watch(fetch: Callable[[], dict[str, Any]], as_json: bool) -> None:
    """Show the status every second until Ctrl-C: in one table that is redrawn, or as a new line of JSON."""
    try:
        if as_json:
            while True:
                typer.echo(json.dumps(fetch(), separators=(",", ":")))
                time.sleep(STATUS_INTERVAL_S)
        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                live.update(peer_table(fetch()), refresh=True)
                time.sleep(STATUS_INTERVAL_S)
    except Terminated:
        raise
    except KeyboardInterrupt:
        typer.echo(err=True)  # after the terminal's ^C; stdout has only lines of JSON


def stop(config: Path, wait_s: float) -> None:
    """Ask a peer to leave, and wait until it has."""
    own = load(config)
    try:
        before = fetch_status(own, own.local_address, own.peer.name)["issues"]
        request_stop(own, own.local_address)
    except (CredentialsError, UnreachableError) as error:
        if isinstance(error, UnreachableError) and (stopped := _not_running(config)):
            raise stopped from error
        raise ValueError(f"{error}{_other_way(own)}") from error
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        try:
            fetch_status(own, own.local_address, own.peer.name)
        except UnreachableError:
            typer.echo(f"{own.peer.name} has left; its model is {own.peer.model}.")
            for topic in {"snapshot", "model"} & set(before):
                typer.echo(f"warning: {before[topic]}", err=True)
            return
        time.sleep(POLL_INTERVAL_S)
    raise OSError(
        f"{own.peer.name} was asked to leave and still answers after {wait_s:g} s: repeat with a longer --wait"
    )


def _not_running(file: Path) -> RetryableError | None:
    """Return the error for a peer that does not answer because no process holds its state; None if one may."""
    own = load(file)
    lock = own.peer.state / "lock"
    try:
        if lock.exists():
            lock_file(lock).release()
    except OSError:  # held, or there is no right to look
        return None
    found = f"{own.peer.name} is not running; start it with 'gadget peer run {shlex.quote(str(file))}'"
    with suppress(ValueError, OSError):  # no model, or a damaged one
        model = load_model(own.peer.model)
        if (kind := getattr(model, "study_", {}).get("kind")) == "certified" and model.gap_bound_ is not None:
            found += f"; its certified model is in {own.peer.model} ({gap_at_most(model.gap_bound_)})"
        elif kind == "agreed":
            found += f"; the model of all sites is in {own.peer.model}"
    return RetryableError(found)


def _other_way(own: PeerConfig) -> str:
    """Return how to stop a peer that does not answer, for example after its certificate expired; empty if none runs."""
    store = SnapshotStore(own.peer.state)
    try:
        if own.peer.state.is_dir():
            store.open()
            store.close()
    except SnapshotError as error:
        if found := re.search(r"process (\d+)", str(error)):
            return f". It runs as process {found[1]}: 'kill -TERM {found[1]}' makes it leave as well"
    return ""


def export(config: Path) -> Path:
    """Write the model of the last snapshot; return the file."""
    own, study = load_files(config)
    try:
        snapshot = SnapshotStore(own.peer.state).load()
        ledger = LedgerFile(own.peer.ledger).load() if study.is_private else None
    except SnapshotError as error:
        raise ValueError(str(error)) from error
    document = None
    if snapshot is not None:
        site = load_site(own, study)
        document = model_of(lambda: Node(own.node_settings(), study, site, random.Random(0)), snapshot, ledger)
    if document is None:
        raise ValueError(
            f"{own.peer.state} holds no model: start the peer with 'gadget peer run {config}', or wait until it has "
            "saved a snapshot with one; 'gadget peer status' says what it waits for"
        )
    return write_model(own.peer.model, document, study)


def model_of(make_node: Callable[[], Node], snapshot: Snapshot, ledger: Ledger | None = None) -> ModelDocument | None:
    """Return the model that a node writes when it leaves at once; else (a certified or lone one) after a heartbeat."""
    for before in ([], [ev.TimerFired()]):
        node = make_node()
        effects, done = node.handle(ev.Started(time.time(), snapshot, ledger), 0.0), 0
        then: list[ev.Event] = [*before, ev.StopRequested("export")]
        while done < len(effects) or then:
            if done == len(effects):
                effects += node.handle(then.pop(0), node.settings.heartbeat)
                continue
            match effects[done]:
                case ev.Export(model=model):
                    return model
                case ev.Save(number=number) if before:
                    effects += node.handle(ev.Saved(number), 0.0)
                case ev.RunStep(step=step):
                    effects += node.handle(ev.StepDone(step()), node.settings.heartbeat)
            done += 1
    return None


def _asked_peer(peer: str | None, config: Path | None) -> tuple[PeerConfig, str, Path | None]:
    """Return the configuration whose certificate to use, the address to ask, and the file of the peer asked, if given.

    A file gives both.
    """
    usual = Path("peer.toml")
    if peer is None:
        own = load(config or usual)
        return own, own.local_address, config or usual
    try:
        where = check_endpoint(peer)
    except ValueError as error:
        if not peer.endswith(".toml") and not Path(peer).exists():
            raise ValueError(f"{error}; nor is there such a file") from error
        asked = load(Path(peer))
        return asked if config is None else load(config), asked.local_address, Path(peer)
    if config is None and not usual.exists():
        raise ValueError(f"{usual} does not exist: name a peer's file with --config, whose certificate {where} trusts")
    return load(config or usual), where, None


def peer_table(found: dict[str, Any]) -> Any:
    """Return one peer in full: its neighbours, with lines about itself below."""
    columns = ("neighbour", "edge", "opened by", "heard", "objective", "pushes sent", "received")
    table = make_table(columns, title=f"{found['name']} at {found['address'] or 'no address (it only dials out)'}")
    for each in found["neighbours"]:
        table.add_row(
            each["name"], each["edge"], {"us": found["name"], "them": each["name"]}.get(each["opened_by"], "-"),
            _seconds(each["last_heard"]), number(each["objective"]),
            f"{each['pushes_sent']:,}", f"{each['pushes_received']:,}",
        )  # fmt: skip
    return Group(table, *map(Text, status_lines(found)))


def status_lines(found: dict[str, Any]) -> list[str]:
    """Return what a status says beside the neighbours, in sentences."""
    members = ", ".join(f"{count} {state}" for state, count in found["members"].items() if count)
    refused = ", ".join(f"{count:,} {reason}" for reason, count in found["refused"].items() if count)
    days = found["certificate_days_left"]
    lines = [
        f"{found['state']}, tick {found['ticks']:,}, {found['rows']:,} rows"
        + (f" of {found['network_rows']:,.0f}" if found["network_rows"] else "")
        + f"; {members}"
        + (f"; dead: {', '.join(found['dead'])}" if found["dead"] else ""),
        *found["why"],
        _privacy(found["privacy"])
        if "privacy" in found
        else f"objective about {number(found['objective'])}, estimated gap {percent(found['gap_estimate'])}, "
        f"disagreement {percent(found['disagreement'])}"
        + ("" if found["test_accuracy"] is None else f", test accuracy {percent(found['test_accuracy'])}"),
        *_models(found["certified"], found["partition"]),
        f"{_total(found, 'messages_sent')} messages sent ({_total(found, 'bytes_sent')} bytes), "
        f"{_total(found, 'messages_received')} received ({_total(found, 'bytes_received')} bytes), "
        f"refused: {refused or 'none'}",
        *(f"no link to {name}: its certificate is {reason}" for name, reason in found["untrusted"].items()),
        *(f"refused: {text}" for text in dict.fromkeys(found["last_refusals"])),
        "" if days is None else f"certificate valid for {days:.0f} days",
        *(f"{topic}: {text}" for topic, text in found["issues"].items() if text not in found["why"]),
    ]
    return [line for line in lines if line]


def _privacy(found: dict[str, Any]) -> str:
    """Return what a private study has spent here."""
    limit = "" if found["epsilon_limit"] is None else f", limit {found['epsilon_limit']:g}"
    return (
        f"private: {found['rounds']} of {found['rounds_planned']} rounds done, epsilon {found['epsilon_spent']:.3g} of "
        f"{found['epsilon']:g} spent at delta {found['delta']:g}; all studies of these rows: "
        f"{found['epsilon_spent_in_all_studies']:.3g}{limit}"
    )


def _total(found: dict[str, Any], counter: str) -> str:
    """Return a counter, which may be told by kind of message."""
    value = found.get(counter, 0)
    return f"{sum(value.values()) if isinstance(value, dict) else value:,}"


def _models(certified: dict[str, Any] | None, partition: dict[str, Any] | None) -> list[str]:
    """Return what is known of the certified model, and of a later one of a part of the sites."""
    lines = ["no certified model yet"]
    if certified is not None:
        confirmed = ", ".join(certified["confirmed"]) or "none yet"
        what = "agreed model" if certified["bound"] is None else "certified model"
        lines = [f"{what} {_described(certified)}; on disk at {confirmed}", _file(certified)]
    if partition is not None:
        lines += [f"model of a part of the sites {_described(partition)}", _file(partition)]
    return lines


def _described(model: dict[str, Any]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(model["time"]))
    sites = ", ".join(map(str, model["sites"]))
    bound = "" if model["bound"] is None else f"{gap_at_most(model['bound'])}, "
    return f"{model['id']} of {when}: {bound}{model['rows']:,.0f} rows of {sites}"


def _file(model: dict[str, Any]) -> str:
    """Return where a model is, once it has been written."""
    return f"  in {model['file']}" if model.get("saved", True) and "file" in model else ""


def percent(value: float | None) -> str:
    """Return a share for the screen."""
    return "-" if value is None else f"{100 * value:.3g} %"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s" if value >= 1 else f"{1000 * value:.1f} ms"
