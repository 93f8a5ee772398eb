"""A small HTTP server for operators: ``/metrics``, ``/healthz`` and ``/status.json``, by aiohttp.

It reads one status document and changes nothing. It has no encryption, so it belongs on a local address.
"""

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gadget_svm.peers.status import HEALTHY

MAX_CONNECTIONS = 64

Status = Callable[[], Mapping[str, Any]]


class StatusServer:
    """Serves until it is stopped."""

    def __init__(self, status: Status, registry: CollectorRegistry) -> None:
        self._status, self._registry = status, registry
        self._runner: Any = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes any free one."""
        from aiohttp import web

        app = web.Application(client_max_size=1024)
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._health),
                web.get("/status.json", self._document),
            ]
        )
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, keepalive_timeout=5.0, shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=MAX_CONNECTIONS)
        try:
            await site.start()
        except OSError as error:
            await self.stop()
            raise OSError(
                error.errno,
                f"cannot serve the status on {host}:{port} ({error.strerror or error}): "
                "set [metrics] port to a free one, or to 0 for none",
            ) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _: Any) -> Any:
        from aiohttp import web

        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _health(self, _: Any) -> Any:
        from aiohttp import web

        found = self._status()
        state = str(found.get("state", "unknown"))
        body = {"state": state, "name": found.get("name"), "why": found.get("why", [])}
        return web.json_response(body, status=200 if state in HEALTHY else 503)

    async def _document(self, _: Any) -> Any:
        from aiohttp import web

        return web.json_response(dict(self._status()))
