"""Reads from http and https addresses: credentials in the URI, redirects, timeouts. Never shows credentials, and never
follows a redirect to another scheme."""

import base64
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any
from urllib.parse import unquote, urlsplit

from gadget_svm.data.uris import WEB

READ_TIMEOUT_S = 60.0


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to http and https only: a server must not make us open a local file."""

    def http_error_302(self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        scheme = urlsplit(headers.get("Location") or headers.get("URI") or "").scheme
        if scheme not in ("", *WEB):  # the error shows only the scheme, as the address may carry a key
            reason = f"{msg}, a redirect to {scheme}:, but only redirects to http and https are followed"
            raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def open_web(url: str, headers: dict[str, str] | None = None, timeout: float = READ_TIMEOUT_S) -> HTTPResponse:
    """Open an http or https address.

    A name and password in the address become basic authentication. They are not sent on to the target of a redirect.
    """
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers=headers or {})
    if at:
        name, _, password = credentials.partition(":")
        token = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    response: HTTPResponse = urllib.request.build_opener(_WebRedirects).open(request, timeout=timeout)
    return response


@contextmanager
def open_web_file(uri: str) -> Iterator[HTTPResponse]:
    """Open a file that is to be read to its end. It is an error if the transfer ends early."""
    try:
        with open_web(uri) as source:
            yield source
            if source.length:  # what is left to read
                raise OSError(f"the transfer broke off {source.length:,} bytes before the end")
    except urllib.error.HTTPError as error:
        kind = FileNotFoundError if error.code in (404, 410) else OSError
        raise kind(f"the server answers {error.code} {error.reason}") from None
