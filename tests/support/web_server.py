"""A server on loopback for the files of a folder: a web server, and the part of S3 that reading needs."""

import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Web:
    """A web server for the files of a folder.

    ``asked`` is called with the path of every request and may block. Only the share ``part`` of each file is sent.
    ``moved`` maps paths to redirects: (status, location).
    """

    part = 1.0

    def __init__(self, folder, asked=None, bucket=""):
        self.folder, self.asked, self.bucket = folder, asked, bucket
        self.moved = {}

    def __enter__(self):
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.answer(body=False)

            def do_GET(self):
                self.answer(body=True)

            def answer(self, body):
                path = unquote(urlsplit(self.path).path)
                if web.asked is not None:
                    web.asked(path)
                if path in web.moved:
                    status, place = web.moved[path]
                    self.send_response(status)
                    self.send_header("Location", place)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                file = web.folder / path.lstrip("/").removeprefix(web.bucket + "/" if web.bucket else "")
                if not file.is_file():
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                content = file.read_bytes()
                span = self.headers.get("Range")
                first, last = 0, len(content) - 1
                if span:
                    first, last = (int(part) for part in span.removeprefix("bytes=").split("-"))
                    last = min(last, len(content) - 1)
                self.send_response(206 if span else 200)
                if span:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
                self.send_header("Content-Length", str(last - first + 1))
                self.send_header("ETag", '"1"')
                self.send_header("Last-Modified", formatdate(file.stat().st_mtime, usegmt=True))
                self.end_headers()
                if body:
                    self.wfile.write(content[first : first + int(web.part * (last + 1 - first))])
                    self.close_connection = web.part < 1

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(20)

    @property
    def port(self):
        return self.server.server_address[1]

    def url(self, name):
        return f"http://127.0.0.1:{self.port}/{name}"

    def s3(self, name):
        place = f"endpoint_override=127.0.0.1:{self.port}&scheme=http"
        return f"s3://key:secret@{self.bucket}/{name}?{place}"
