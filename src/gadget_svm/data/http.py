"""Reads files by http and https, with the name and password that a URI may carry."""

import base64
import shutil
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import unquote, urlsplit

from gadget_svm.data.download import web_opener

WEB_TIMEOUT_S = 60.0
"""Seconds that a web server may say nothing."""


def fetch_web(place: str, target: Any) -> None:
    """Copy what an http or https URI names, all of it."""
    try:
        with web_opener().open(_request(place), timeout=WEB_TIMEOUT_S) as source:
            shutil.copyfileobj(source, target)
            said, came = source.headers.get("Content-Length"), target.tell()
    except urllib.error.HTTPError as error:
        kind = FileNotFoundError if error.code in (404, 410) else OSError
        raise kind(f"the server answers {error.code} {error.reason}") from None
    if said is not None and int(said) != came:
        raise OSError(f"only {came:,} of {int(said):,} bytes came")


def _request(place: str) -> urllib.request.Request:
    """What a name and password in a URI ask for is basic authentication; another server that we are sent on to does
    not get them."""
    parts = urlsplit(place)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl())
    if at:
        name, _, word = user.partition(":")
        said = base64.b64encode(f"{unquote(name)}:{unquote(word)}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {said}")
    return request
