"""What peers and hosts may be called. Owns the patterns and their error sentences; looks nothing up."""

import ipaddress
import re

from gadget_svm.study.study import SITE_NAME

NAME = SITE_NAME
HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def check_name(name: str) -> str:
    """A peer's name, which is also a DNS name of its certificate."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no peer's name: 1 to 63 small letters, digits, '-' and '.', first and last a letter or "
            "digit, such as hospital-a"
        )
    if ip_address(name) is not None:
        raise ValueError(f"{name!r} is an address, not a name: call the peer something like hospital-a, give --host")
    return name


def check_host(host: str) -> str:
    """A DNS name or an IP address (v4 or v6, with or without brackets), without a port."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    address = ip_address(bare)
    if address is not None and "%" not in bare:
        return str(address)
    labels = bare.rstrip(".").split(".")
    if len(bare) > 253 or not all(HOST_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{host!r} is no host: give a DNS name or an IP address without a port, such as 10.0.0.7")
    return bare.rstrip(".").lower()


def check_endpoint(text: str) -> str:
    """host:port, an IPv6 address in brackets; returned with the host as `check_host` writes it."""
    host, colon, port = text.rpartition(":")
    bare_v6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not colon or not host or bare_v6 or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError(f"{text!r} is not host:port, such as site-a.example.org:7400, 10.0.0.7:7400 or [::1]:7400")
    found = check_host(host)
    return f"[{found}]:{int(port)}" if ":" in found else f"{found}:{int(port)}"


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, if it is one."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
