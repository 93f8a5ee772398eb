"""`gadget certs`: a local certificate authority. `gadget_svm.peers.certs` signs."""

from json import dumps
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from gadget_svm.cli.options import Json, local_path, require_packages

certs_app = typer.Typer(
    help="Certificates for peers: your own authority, one certificate per site.", no_args_is_help=True
)
PeerName = Annotated[str, typer.Argument(metavar="NAME", help="The peer's name, such as hospital-a.")]
Ca = Annotated[Path, typer.Option("--ca", metavar="DIR", callback=local_path, help="The authority's folder.")]
Days = Annotated[int, typer.Option(help="Validity in days.", min=1)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def peers_certs() -> ModuleType:
    """Return the module that does the work, or raise an ImportError that names the extra to install."""
    require_packages("certificates", "cryptography")
    from gadget_svm.peers import certs

    return certs


@certs_app.command("init")
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", callback=local_path, help="A new folder; keep it private.")],
    name: Annotated[str, typer.Option(help="The name of the authority.")] = "gadget-svm",
    days: Days = 3650,
    overwrite: Overwrite = False,
) -> None:
    """Make a certificate authority: ca.pem, its key, an empty revocation list."""
    certs = peers_certs()
    authority = certs.init_ca(folder, name=name, days=days, overwrite=overwrite)
    _say(f"The authority is in {folder}, valid until {certs.day(authority.cert.not_valid_after_utc.timestamp())}.")
    _say(f"Anybody who has {folder / certs.CA_KEY} can create peers: keep it here; the other files are public.")


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
    _say(f"{name}, valid until {certs.day(made.not_after)}: {files} in {made.cert.parent}")
    _say(f"Copy all four to that site, {made.key.name} over a secure channel, and delete that key here.")


@certs_app.command("revoke")
def revoke(
    name: PeerName,
    ca: Ca = Path("ca"),
    older: Annotated[bool, typer.Option("--older", help="Revoke all but the newest, after a renewal.")] = False,
) -> None:
    """Revoke every certificate of a peer. Other peers refuse it once they have the new revoked.pem."""
    certs = peers_certs()
    serials = certs.revoke(ca, name, keep_newest=older)
    what = f"{len(serials)} certificate{'s' * (len(serials) != 1)} of {name} revoked" if serials else "Nothing new"
    _say(f"{what}: {', '.join(f'{serial:x}' for serial in serials) or f'{name} has no other valid certificate'}")
    _say(f"Copy {ca / certs.REVOKED} over that of every peer; running peers reload it.")


@certs_app.command("list")
def list_certificates(ca: Ca = Path("ca"), json: Json = False) -> None:
    """List the certificates that were issued, and which are valid."""
    import time

    from rich.console import Console

    from gadget_svm.cli.output import make_table

    certs = peers_certs()
    rows = [
        {
            "name": record.name,
            "state": record.state(time.time()),
            "until": certs.day(record.not_after),
            "serial": f"{record.serial:x}",
            "hosts": list(record.hosts),
        }
        for record in certs.records(ca)
    ]
    if json:
        typer.echo(dumps(rows))
        return
    if not rows:
        _say(f"No certificate has been issued yet: gadget certs issue NAME --host HOST --ca {ca}")
        return
    table = make_table(rows[0], plain=True)
    for row in rows:
        table.add_row(row["name"], row["state"], row["until"], row["serial"][:12], ", ".join(row["hosts"]))
    Console().print(table)


def _say(text: str) -> None:
    from rich.console import Console

    from gadget_svm.cli.output import say

    say(Console(), text)
