"""A small HTTP server for operators: ``/metrics``, ``/healthz`` and ``/status.json``, by aiohttp.

It reads one status document and changes nothing. It has no encryption, so it belongs on a local address.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gadget_svm.peers.process.metrics import StatusCollector
from gadget_svm.peers.status import HEALTHY

MAX_CONNECTIONS = 64


async def serve_status(status: Callable[[], Mapping[str, Any]], host: str, port: int) -> web.AppRunner:
    """Listen, and answer until ``cleanup`` of what is returned is called; port 0 takes any free one."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(status))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def health(_: web.Request) -> web.Response:
        found = status()
        body = {"state": found["state"], "name": found["name"], "why": found.get("why", [])}
        return web.json_response(body, status=200 if found["state"] in HEALTHY else 503)

    async def document(_: web.Request) -> web.Response:
        return web.json_response(dict(status()))

    app = web.Application(client_max_size=1024)
    for path, answer in (("/metrics", metrics), ("/healthz", health), ("/status.json", document)):
        app.router.add_get(path, answer)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, keepalive_timeout=5.0, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=MAX_CONNECTIONS).start()
    except OSError as error:
        await runner.cleanup()
        raise OSError(
            error.errno,
            f"cannot serve the status on {host}:{port} ({error.strerror or error}): "
            "set [metrics] port to a free one, or to 0 for none",
        ) from error
    return runner
