"""The page of the wire format names all fields, methods and errors, and its example runs."""

import contextlib
import io
import re
from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("google.protobuf", reason="needs gadget-svm[peer]")

from gadget_svm.peers.wire import peer_pb2
from gadget_svm.peers.wire.limits import Reason

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "wire-format.md").read_text()


def test_the_example_prints_what_the_page_says():
    [(code, shown)] = re.findall(r"```python\n(.*?)```\n.*?```text\n(.*?)```", TEXT, re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code, {})
    assert said.getvalue() == shown


def test_the_page_names_everything():
    for name, message in peer_pb2.DESCRIPTOR.message_types_by_name.items():
        part = re.search(rf"^### {name}\n(.*?)(?=^##)", TEXT, re.DOTALL | re.MULTILINE)
        assert part, name
        said = re.findall(r"^\| (\d+) \| `(\w+)` \|", part[1], re.MULTILINE)
        assert said == [(str(f.number), f.name) for f in message.fields], name
    for method in peer_pb2.DESCRIPTOR.services_by_name["Peer"].methods:
        assert f"| `{method.name}` | " in TEXT
    assert set(re.findall(r"^\| `([a-z-]+)` \| [a-zN]", TEXT, re.MULTILINE)) == set(get_args(Reason))
