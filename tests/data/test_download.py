"""Downloading, against a server on this machine that can cut transfers short, refuse and resume."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gadget_svm.data.catalog import Mirror
from gadget_svm.data.download import (
    DownloadError,
    download_file,
    download_from_mirrors,
    recorded_checksum,
    verify_checksum,
)
from gadget_svm.data.files import DataFileError

BODY = bytes(range(256)) * 4000
SUM = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Range")))
        answers = self.server.answers[self.path]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer(self)

    def log_message(self, *_args):
        pass


def whole(body=BODY, tag=None):
    def answer(handler):
        start = int(handler.headers["Range"][6:-1]) if handler.headers.get("Range") else 0
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(body) - start))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if tag:
            handler.send_header("ETag", tag)
        handler.end_headers()
        handler.wfile.write(body[start:])

    return answer


def cut(tag=None):
    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BODY)))
        if tag:
            handler.send_header("ETag", tag)
        handler.end_headers()
        handler.wfile.write(BODY[:1000])
        handler.close_connection = True

    return answer


def status(code, **headers):
    def answer(handler):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers, server.seen = {}, []
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_success(server, tmp_path):
    server.answers["/f"] = [whole()]
    calls = []
    path = download_file(f"{server.url}/f", tmp_path / "d" / "f.gz", progress=lambda *done: calls.append(done))
    assert path.read_bytes() == BODY
    assert (tmp_path / "d" / "SHA256SUMS").read_text() == f"{SUM}  f.gz\n"
    assert names(tmp_path / "d") == ["SHA256SUMS", "f.gz"]
    assert calls[-1] == (len(BODY), len(BODY))


def test_good_copy_is_kept(server, tmp_path):
    server.answers["/f"] = [whole()]
    for _ in range(2):
        download_file(f"{server.url}/f", tmp_path / "f", sha256=SUM)
    assert len(server.seen) == 1


def test_two_downloads_of_one_file(server, tmp_path):
    """Each writes to a part of its own, so a second fetch in the middle of the first harms neither."""
    server.answers["/f"] = [whole()]
    inner = []

    def fetch_again(done, _total):
        if not inner:
            inner.append(done)
            download_file(f"{server.url}/f", tmp_path / "f")

    path = download_file(f"{server.url}/f", tmp_path / "f", progress=fetch_again)
    assert 0 < inner[0] < len(BODY)
    assert path.read_bytes() == BODY
    assert names(tmp_path) == ["SHA256SUMS", "f"]


def test_damaged_copy_is_replaced(server, tmp_path):
    server.answers["/f"] = [whole()]
    download_file(f"{server.url}/f", tmp_path / "f")
    (tmp_path / "f").write_bytes(b"rotten")
    with pytest.raises(DataFileError, match=f"has changed.*{SUM}"):
        verify_checksum(tmp_path / "f")
    download_file(f"{server.url}/f", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    verify_checksum(tmp_path / "f")


def test_published_checksum_differs(server, tmp_path):
    server.answers["/f"] = [whole()]
    wrong = "0" * 64
    with pytest.raises(DataFileError, match=f"{SUM}, expected was {wrong}"):
        download_file(f"{server.url}/f", tmp_path / "f", sha256=wrong)
    assert names(tmp_path) == []


def test_recorded_checksum_differs(server, tmp_path):
    server.answers["/f"] = [whole(), whole(b"something else")]
    download_file(f"{server.url}/f", tmp_path / "f")
    (tmp_path / "f").unlink()
    with pytest.raises(DataFileError, match=f"expected was {SUM}.*SHA256SUMS"):
        download_file(f"{server.url}/f", tmp_path / "f")
    assert names(tmp_path) == ["SHA256SUMS"]
    assert recorded_checksum(tmp_path / "f") == SUM


def test_retry_after_truncation(server, tmp_path):
    server.answers["/f"] = [cut(), whole()]
    pauses = []
    path = download_file(f"{server.url}/f", tmp_path / "f", sleep=pauses.append)
    assert path.read_bytes() == BODY
    assert pauses == [0.5]


def test_resume(server, tmp_path):
    server.answers["/f"] = [cut(tag='"v1"'), whole(tag='"v1"')]
    path = download_file(f"{server.url}/f", tmp_path / "f", sleep=lambda _: None)
    assert path.read_bytes() == BODY
    assert [asked for _, asked in server.seen] == [None, "bytes=1000-"]


def test_giving_up(server, tmp_path):
    server.answers["/f"] = [cut()]
    pauses = []
    with pytest.raises(DownloadError, match=f"broke off after 1000 of {len(BODY)} bytes"):
        download_file(f"{server.url}/f", tmp_path / "f", sleep=pauses.append)
    assert pauses == [0.5, 1.0, 2.0]
    assert names(tmp_path) == []


def test_which_errors_are_retried(server, tmp_path):
    server.answers |= {"/busy": [status(503), whole()], "/gone": [status(404)]}
    assert download_file(f"{server.url}/busy", tmp_path / "f", sleep=lambda _: None).read_bytes() == BODY
    with pytest.raises(DownloadError, match="the server answered 404"):
        download_file(f"{server.url}/gone", tmp_path / "g", sleep=lambda _: pytest.fail("a 404 was retried"))


def test_second_mirror(server, tmp_path):
    server.answers |= {"/gone": [status(404)], "/bad": [whole(b"bad")], "/good": [whole()]}
    for first in ("/gone", "/bad"):
        mirrors = [Mirror(server.url + first, SUM), Mirror(f"{server.url}/good", SUM)]
        assert download_from_mirrors(mirrors, tmp_path / first[1:]).read_bytes() == BODY


def test_no_mirror_delivers(server, tmp_path):
    server.answers |= {"/a": [status(404)], "/b": [status(410)]}
    with pytest.raises(DownloadError, match=r"/a: the server answered 404.*/b: the server answered 410"):
        download_from_mirrors([Mirror(f"{server.url}/a"), Mirror(f"{server.url}/b")], tmp_path / "f")


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/f", "f"])
def test_only_http_and_https(url, tmp_path):
    with pytest.raises(ValueError, match="only http and https"):
        download_file(url, tmp_path / "f")


def test_redirects_stay_in_http(server, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"local")
    for target in (secret.as_uri(), "ftp://127.0.0.1/f"):
        server.answers["/f"] = [status(302, Location=target)]
        with pytest.raises(DownloadError):
            download_file(f"{server.url}/f", tmp_path / "f")
    assert names(tmp_path) == ["secret"]


def test_refused_connection(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(DownloadError, match="refused"):
        download_file(f"{server.url}/f", tmp_path / "f", sleep=lambda _: pytest.fail("a refused call was retried"))
