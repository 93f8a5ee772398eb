"""`gadget peer`: configure, run, watch and stop a site's own process. `peer_client` and `gadget_svm.peers` do it."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from gadget_svm.cli.errors import RetryableError
from gadget_svm.cli.file_options import KeyOption, by_section, naming_options, relative, with_keys, write_file
from gadget_svm.cli.option_names import naming
from gadget_svm.cli.options import Json, command_for, local_path, option, option_field, require_packages
from gadget_svm.cli.peer_simulate import simulate

peer_app = typer.Typer(help="Peers: one process per site, connected by mTLS.", no_args_is_help=True)
Toml = Annotated[Path, typer.Argument(metavar="PEER.TOML", help="The peer's file, as 'gadget peer new' writes it.")]
OWN_HELP = "The file of the peer whose certificate is used. Default: that of the peer asked, or peer.toml."
Own = Annotated[Path | None, option("--config", metavar="PEER.TOML", help=OWN_HELP)]
Asked = Annotated[str | None, typer.Argument(help="host:port of a peer, or its file. Default: the one of --config.")]
CHECK_HELP = "Whether to compare the rows with the study; --no-check if they are on another machine."
REACHABLE = {"auto": "auto", "true": True, "false": False}
UntilName = StrEnum("UntilName", "stopped certified finished")
Until = Annotated[
    UntilName, option("--until", help="Exit with 0 once the study has ended: certified, or finished if private.")
]
TLS = ("cert", "key", "ca", "revoked")
KEYS = {
    "peer.study": KeyOption("--study", Path, "The study's file. Default: study.toml beside the new file."),
    "peer.listen": KeyOption("--listen", str, "Where it listens. Default: the port of --address on every interface."),
    "peer.address": KeyOption("--address", str, "How others reach it, host:port."),
    "peer.reachable": KeyOption("--reachable", str, "auto, true, or false for a site that accepts no connections."),
    "peer.join": KeyOption("--join", list[str], "The address of a peer to contact first. Repeatable."),
    "peer.state": KeyOption("--state", Path, "The folder for what must survive a restart."),
    "peer.model": KeyOption("--model", Path, "The file for the model."),
    "peer.ledger": KeyOption("--ledger", Path, "The file of what the rows have spent in all private studies."),
    "peer.seed": KeyOption("--seed", int, "Decides every draw of the algorithm."),
    "peer.float32": KeyOption("--float32/--no-float32", bool, "Send half as many bytes, with seven digits."),
    "tls.cert": KeyOption("--cert", Path, "Its certificate."),
    "tls.key": KeyOption("--key", Path, "Its private key."),
    "tls.ca": KeyOption("--ca", Path, "The authority that all peers share."),
    "tls.revoked": KeyOption("--revoked", Path, "The authority's revocation list."),
    "data.train": KeyOption("--train", Path, "The rows of the site. Required."),
    "data.label": KeyOption("--label", str, "The label's column, if the file has columns."),
    "data.test": KeyOption("--test", Path, "Rows to measure accuracy on."),
    "data.zero_based": KeyOption("--zero-based/--one-based", bool, "How an svmlight file counts its columns."),
    "privacy.epsilon_limit": KeyOption("--epsilon-limit", float, "The most that all private studies may spend."),
    "privacy.delta": KeyOption("--limit-delta", float, "The delta of --epsilon-limit."),
    "pace.tick": KeyOption("--tick", float, "Least seconds between two ticks of the algorithm."),
    "pace.heartbeat": KeyOption("--heartbeat", float, "Seconds between two heartbeats."),
    "pace.suspect": KeyOption("--suspect", float, "Seconds of silence after which a peer is suspected."),
    "pace.dead": KeyOption("--dead", float, "Seconds of suspicion after which it counts as dead."),
    "pace.snapshot": KeyOption("--snapshot", float, "Least seconds between two snapshots."),
    "pace.export": KeyOption("--export", float, "Least seconds between two writings of the model."),
    "pace.send_rate": KeyOption("--send-rate", float, "Bytes of weights per second that it sends."),
    "pace.linger": KeyOption("--linger", float, "Seconds that a certified peer waits for others before it ends."),
    "pace.stop_after_seconds": KeyOption("--stop-after-seconds", float, "Stop by itself."),
    "pace.stop_after_ticks": KeyOption("--stop-after-ticks", int, "Stop by itself."),
    "limits.message_rate": KeyOption("--message-rate", float, "Messages a second from one sender."),
    "limits.burst": KeyOption("--burst", int, "Messages at once from one sender."),
    "limits.connections": KeyOption("--connections", int, "Open connections."),
    "limits.members": KeyOption("--members", int, "Peers to remember."),
    "metrics.port": KeyOption("--metrics-port", int, "For /metrics, /healthz and /status.json; 0: none."),
    "metrics.host": KeyOption("--metrics-host", str, "Their address; keep it local."),
    "log.level": KeyOption("--log-level", str, "debug, info, warning or error."),
    "log.format": KeyOption("--log-format", str, "json or text."),
}
"""Every key of peer.toml except the name, with its option."""


MODULES = (
    "gadget_svm.peers", "cryptography", "google.protobuf", "grpc", "prometheus_client", "pydantic", "aiohttp",
)  # fmt: skip
"""What peers need. The first one sets how much gRPC logs."""


def _client() -> ModuleType:
    """Return the module that talks to peers, if all packages are there."""
    require_packages("peers", *MODULES)
    from gadget_svm.cli import peer_client

    return peer_client


@dataclass(frozen=True)
class PeerDemoRequest:
    """The arguments of a demo as typed."""

    peers: int = option_field("--peers", default=5, min=2, max=64, help="Number of processes.")
    data: str = option_field("--data", default="digits", help="A named data set, or a file.")
    seconds: float = option_field("--seconds", default=300.0, min=5.0, max=1e6, help="The longest that they may take.")
    out: Path = option_field("--out", default=Path("peers"), check=local_path, help="A new folder, or an earlier demo.")
    chaos: bool = option_field("--chaos", default=False, help="Kill one peer with SIGKILL, and start it again.")
    gap: float = option_field("--gap", default=0.01, min=1e-6, max=10.0, help="The certified gap at which they end.")
    lam: float | None = option_field("--lam", min=1e-12, max=1e6, help="Default: the paper's for its data sets.")
    random_state: int = option_field("--seed", default=0, min=0, help="The seed that divides the rows.")
    quiet: bool = option_field("--quiet", "-q", default=False, help="Print only the result.")
    json: bool = option_field("--json", default=False, help="Print one JSON object on stdout, and nothing else.")


@peer_app.command("new")
@with_keys(KEYS)
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The peer's name, as in its certificate.")],
    certs: Annotated[
        Path | None,
        option("--certs", metavar="DIR", help="The folder of its certificate, key, ca.pem and revoked.pem."),
    ] = None,
    out: Annotated[Path, option("--out", check=local_path, help="The file to write.")] = Path("peer.toml"),
    overwrite: Annotated[bool, option("--overwrite", help="Replace an existing file.")] = False,
    check: Annotated[bool, option("--check/--no-check", help=CHECK_HELP)] = True,
    **keys: Any,
) -> None:
    """Write a commented peer.toml, if the rows fit the study. Paths are relative to this folder."""
    require_packages("peers", "pydantic")
    from gadget_svm.peers.names import check_endpoint
    from gadget_svm.peers.process.config import template

    values = by_section(KEYS, keys, out.parent)
    peer, data, tls = values["peer"], values["data"], values["tls"]
    if peer["listen"] is None and peer["address"] is not None:
        with naming("--address"):
            peer["listen"] = f"0.0.0.0:{check_endpoint(peer['address']).rpartition(':')[2]}"
    if (word := peer["reachable"]) is not None:
        if word not in REACHABLE:
            raise ValueError(f"--reachable must be {', '.join(REACHABLE)}, got {word!r}")
        peer["reachable"] = REACHABLE[word]
    data["label"] = int(data["label"]) if (data["label"] or "").isdecimal() else data["label"]
    if certs is not None:
        for key, file in zip(TLS, (f"{name}.pem", f"{name}.key", "ca.pem", "revoked.pem"), strict=True):
            tls[key] = tls[key] or relative(certs / file, out.parent)
    with naming_options(KEYS):
        text = template(name, values)
    if check:
        _check_files(name, out.parent, certs, keys, data["label"])
    write_file(out, text, overwrite)
    typer.echo(f"{out} is written: review it, then 'gadget peer run {out}'.")


def _check_files(name: str, folder: Path, certs: Path | None, keys: dict[str, Any], label: str | int | None) -> None:
    """Compare the files of a new peer with its name and its study; an error names the option and the fix."""
    from gadget_svm.peers.names import check_endpoint
    from gadget_svm.peers.process.site_files import read_site
    from gadget_svm.study.study_file import load_study

    study, train, test = keys["peer_study"] or folder / "study.toml", keys["data_train"], keys["data_test"]
    fixes = {
        ("--study", study): "write it with 'gadget study new', or copy that of another site",
        ("--train", train): "name the rows of the site",
        ("--test", test): "name other rows, or leave it out",
    }
    if certs is not None:
        fixes["--certs", certs / f"{name}.pem"] = f"'gadget certs issue {name}' makes a folder with its certificate"
    for (typed, path), fix in fixes.items():
        if path is not None and not path.is_file():
            raise FileNotFoundError(f"{typed}: there is no file {path}: {fix}; --no-check writes the file all the same")
    cert, address = keys["tls_cert"] or (certs and certs / f"{name}.pem"), keys["peer_address"]
    if address is not None and cert is not None:
        require_packages("peers", "cryptography")
        from gadget_svm.peers.security.credentials import address_problem

        if problem := address_problem(cert, check_endpoint(address)):
            raise ValueError(f"{problem}; --no-check writes the file all the same")
    agreed = load_study(study)
    site = read_site(train, agreed, test=test, label=label, zero_based=keys["data_zero_based"])
    typer.echo(f"{train} fits {study}: {site.X.shape[0]:,} rows, {site.X.shape[1]:,} features.")
    if agreed.sites and name not in agreed.sites:
        text = f"{study} waits for the sites {', '.join(agreed.sites[:10])}, and {name} is none of them"
        typer.echo(f"warning: {text}: is the name right?", err=True)


@peer_app.command("run")
def run(
    config: Toml = Path("peer.toml"),
    fresh: Annotated[bool, option("--fresh", help="Start from scratch; the saved state is moved aside.")] = False,
    until: Until = UntilName.stopped,
) -> None:
    """Run a peer until it is stopped (Ctrl-C, SIGTERM, the end of its terminal, 'gadget peer stop'), or until the study
    has ended; it then saves its state and model."""
    own, study = _client().load_files(config)
    from gadget_svm.peers.node import check_until
    from gadget_svm.peers.process.running import BrokenError, run_peer

    end: Any = until.value
    check_until(end, study)
    try:
        raise typer.Exit(run_peer(own, study, fresh=fresh, until=end))
    except BrokenError as error:
        raise RetryableError(str(error)) from error


@peer_app.command("status")
def status(
    peer: Asked = None,
    config: Own = None,
    json: Json = False,
    watch: Annotated[bool, option("--watch", help="Repeat every second, until Ctrl-C; JSON on one line each.")] = False,
) -> None:
    """Show a peer's state, links, members, certified model, objective, estimated gap and issues."""
    _client().show_status(peer, config, json, watch)


@peer_app.command("stop")
def stop(
    config: Toml = Path("peer.toml"),
    wait: Annotated[float, option("--wait", help="Seconds to wait until it has left.")] = 20.0,
) -> None:
    """Stop a peer: it leaves the network and saves its state and model. After a while its rows no longer count."""
    _client().stop(config, wait)


@peer_app.command("export")
def export(config: Toml = Path("peer.toml")) -> None:
    """Write the model of the last snapshot, whether the peer runs or not."""
    typer.echo(f"{_client().export(config)} is written.")


@peer_app.command("demo")
@command_for(PeerDemoRequest)
def demo(request: PeerDemoRequest) -> None:
    """Real peers on this machine, with new certificates, learn until their common model is certified."""
    require_packages("peers", *MODULES)
    from gadget_svm.cli.peer_demo import run_demo

    raise typer.Exit(run_demo(request))


peer_app.command("simulate")(simulate)
