"""`gadget certs`: the local certificate authority on the command line. Signing is the work of `peers.certs`."""

import json as jsonlib
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from gadget_svm.cli.options import local_path

certs_app = typer.Typer(
    help="Certificates for peers: an authority of your own, one certificate a site.", no_args_is_help=True
)
PeerName = Annotated[str, typer.Argument(metavar="NAME", help="The peer's name, such as hospital-a.")]
Ca = Annotated[Path, typer.Option("--ca", metavar="DIR", callback=local_path, help="The authority's folder.")]
Days = Annotated[int, typer.Option(help="How long it is good for.", min=1)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def peers_certs() -> ModuleType:
    """The module that does the work, or an ImportError that says how to get what it needs."""
    try:
        from gadget_svm.peers import certs
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gadget_svm"):
            raise
        raise ImportError(
            f"certificates need {error.name}, which is not installed: pip install 'gadget-svm[peer]'"
        ) from error
    return certs


@certs_app.command("init")
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", callback=local_path, help="A new folder; keep it safe and to yourself.")
    ],
    name: Annotated[str, typer.Option(help="What the authority is called.")] = "gadget-svm",
    days: Days = 3650,
    overwrite: Overwrite = False,
) -> None:
    """Make a certificate authority: ca.pem, its key, an empty revocation list."""
    certs = peers_certs()
    authority = certs.init_ca(folder, name=name, days=days, overwrite=overwrite)
    _say(f"The authority is in {folder}, good until {certs.day(authority.cert.not_valid_after_utc.timestamp())}.")
    _say(f"Whoever has {folder / certs.CA_KEY} can make peers: it stays here, the other files are public.")


@certs_app.command("issue")
def issue(
    name: PeerName,
    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="H", help="A DNS name or IP address of it. Repeatable.")
    ] = None,
    ca: Ca = Path("ca"),
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", callback=local_path, help="Where the files go. Default: peers/NAME in --ca."
        ),
    ] = None,
    days: Days = 365,
    overwrite: Overwrite = False,
) -> None:
    """Issue a peer's certificate: NAME.pem and NAME.key, with ca.pem and revoked.pem beside them."""
    certs = peers_certs()
    made = certs.issue(ca, name, host or [], days=days, out=out, overwrite=overwrite)
    files = ", ".join(path.name for path in (made.cert, made.key, made.ca, made.revoked))
    _say(f"{name}, good until {certs.day(made.not_after)}: {files} in {made.cert.parent}")
    _say(f"Take all four to that site, {made.key.name} over a safe way, and delete that key here.")


@certs_app.command("revoke")
def revoke(
    name: PeerName,
    ca: Ca = Path("ca"),
    older: Annotated[bool, typer.Option("--older", help="All but the newest: after a renewal.")] = False,
) -> None:
    """Revoke every certificate of a peer. The others refuse it as soon as they have the new revoked.pem."""
    certs = peers_certs()
    serials = certs.revoke(ca, name, keep_newest=older)
    what = f"{len(serials)} certificate{'s' * (len(serials) != 1)} of {name} revoked" if serials else "Nothing new"
    _say(f"{what}: {', '.join(f'{serial:x}' for serial in serials) or f'{name} has no other valid certificate'}")
    _say(f"Copy {ca / certs.REVOKED} over that of every peer; those that run take it up by themselves.")


@certs_app.command("list")
def show(
    ca: Ca = Path("ca"),
    json: Annotated[bool, typer.Option("--json", help="One JSON array on stdout.")] = False,
) -> None:
    """List the certificates that were issued, and which are good."""
    import time

    from rich import box
    from rich.console import Console
    from rich.table import Table

    certs = peers_certs()
    if json:
        listed = [
            {
                "name": record.name,
                "state": record.state(time.time()),
                "until": certs.day(record.not_after),
                "serial": f"{record.serial:x}",
                "hosts": list(record.hosts),
            }
            for record in certs.records(ca)
        ]
        typer.echo(jsonlib.dumps(listed))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "state", "until", "serial", "hosts"):
        table.add_column(column, overflow="fold", no_wrap=column in ("state", "until"))
    for record in certs.records(ca):
        state, until = record.state(time.time()), certs.day(record.not_after)
        table.add_row(record.name, state, until, f"{record.serial:x}"[:12], ", ".join(record.hosts))
    if table.row_count:
        Console().print(table)
    else:
        _say(f"No certificate has been issued yet: gadget certs issue NAME --host HOST --ca {ca}")


def _say(text: str) -> None:
    from rich.console import Console

    from gadget_svm.cli.output import say

    say(Console(), text)
