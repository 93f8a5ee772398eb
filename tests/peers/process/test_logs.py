"""Logs: one line a record whatever it holds, and nothing that another peer sent can forge a line."""

import io
import json
import logging
import re
import sys
import warnings

import numpy as np
import pytest

from gadget_svm.peers.process.logs import (
    MAX_ENTRIES,
    MAX_TEXT,
    PeerFormatter,
    fields,
    plain,
    setup_logging,
)

MOMENT = 1_700_000_000.25


def record(text, /, *args, level=logging.INFO, error=None, **values):
    made = logging.LogRecord("gadget_svm.peers.peer", level, __file__, 1, text, args, error)
    made.created = MOMENT
    if values:
        made.fields = values
    return made


def as_json(made):
    return json.loads(
        PeerFormatter("site-a", "json").format(made), parse_constant=lambda sign: pytest.fail(f"not JSON: {sign}")
    )


def as_text(made):
    return PeerFormatter("site-a", "text").format(made)


@pytest.fixture
def stream():
    """A stream to log to."""
    return io.StringIO()


def test_a_record_in_both_forms():
    made = record("state saved in %s", "there", level=logging.WARNING, seconds=0.5, path="a b")
    assert as_json(made) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "peer": "site-a",
        "event": "state saved in there",
        "fields": {"seconds": 0.5, "path": "a b"},
    }
    assert as_text(made) == ('2023-11-14T22:13:20.250Z warning site-a: state saved in there seconds=0.5 path="a b"')


def test_no_fields_no_word_of_them():
    assert "fields" not in as_json(record("started"))
    assert as_text(record("started")).endswith("site-a: started")


@pytest.mark.parametrize(
    "evil", ["a\nb", "a\r\nb", "\x1b[2J", "a\u2028b", "a\x85b", "\u202eabc", "\x00", "\ud800", 'x" level="error']
)
def test_a_text_of_another_peer_stays_in_its_line(evil):
    made = record(f"heard {evil}", text=evil, several=[evil])
    line = PeerFormatter("site-a", "json").format(made)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["fields"] == {"text": evil, "several": [evil]}
    text = as_text(made)
    assert text.isprintable()
    text.encode()  # also what is half a sign
    if evil.isprintable():
        assert 'text="x\\" level=\\"error"' in text


def test_an_error_is_told_in_one_line_of_json_and_indented_in_text():
    try:
        raise ValueError("first\n2023-11-14T22:13:20.250Z error site-b: forged")
    except ValueError:
        made = record("it failed", error=sys.exc_info())
    told = as_json(made)
    assert told["event"] == "it failed"
    assert "ValueError: first" in told["error"]
    first, *others = as_text(made).split("\n")
    assert first.endswith("site-a: it failed")
    assert len(others) >= 3
    assert all(line.startswith("    ") for line in others)


def test_values_become_plain():
    values = [float("nan"), np.float64("inf"), 7, True, None, 2.5, ValueError("x"), ("a", [1.0])]
    assert plain(values) == [None, None, 7, True, None, 2.5, "x", ["a", [1.0]]]


def test_a_record_is_bounded():
    made = record("x" * 10**6, text="y" * 10**6, many=list(range(10**5)), raw=bytes(10**6))
    told = as_json(made)
    assert told["event"] == "x" * MAX_TEXT + "…"
    assert told["fields"]["text"] == "y" * MAX_TEXT + "…"
    assert told["fields"]["many"] == list(range(MAX_ENTRIES))
    assert len(told["fields"]["raw"]) == MAX_TEXT + 1
    assert len(as_text(made)) < 10 * MAX_TEXT


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_levels_hold_for_this_package_and_others_begin_at_warning(stream, level):
    setup_logging(level, "json", "site-a", stream)
    for name in ("gadget_svm.peers.peer", "elsewhere"):
        for each in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), each)("%s %s", name, each)
    said = [json.loads(line)["event"].split() for line in stream.getvalue().splitlines()]
    order = ["debug", "info", "warning", "error"]
    assert [word for name, word in said if name != "elsewhere"] == order[order.index(level) :]
    assert [word for name, word in said if name == "elsewhere"] == order[max(order.index(level), 2) :]


def test_fields_may_have_the_names_that_logging_keeps_for_itself(stream):
    setup_logging("info", "text", "site-a", stream)
    logging.getLogger("gadget_svm.peers").info("joined", extra=fields(name="site-b", args=1, level="x"))
    assert re.fullmatch(r'\S+Z info    site-a: joined name="site-b" args=1 level="x"\n', stream.getvalue())


def test_setting_up_again_replaces_and_leaves_other_handlers(stream):
    other = logging.NullHandler()
    logging.getLogger().addHandler(other)
    setup_logging("info", "json", "a", first := io.StringIO())
    setup_logging("info", "json", "b", stream)
    assert other in logging.getLogger().handlers
    logging.getLogger("gadget_svm").warning("once")
    assert not first.getvalue()
    assert [json.loads(line)["peer"] for line in stream.getvalue().splitlines()] == ["b"]


def test_python_s_warnings_are_logged_too(stream):
    setup_logging("error", "json", "site-a", io.StringIO())
    setup_logging("info", "json", "site-a", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("mind the gap", UserWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert "mind the gap" in json.loads(stream.getvalue())["event"]
