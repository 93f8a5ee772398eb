"""Metrics: what is counted is shown, and the server answers once, whatever is thrown at it."""

import asyncio
import contextlib
import json
import math
import re
import socket

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra: pip install 'gadget-svm[peer]'")

from prometheus_client.parser import text_string_to_metric_families

from gadget_svm.peers.metrics import OTHER, REASONS, STATES, Metrics, serve


def samples(metrics):
    families = text_string_to_metric_families(metrics.text().decode())
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def well():
    return True, {"name": "site-a", "gap": math.nan}


def talk(*requests, healthy=well, metrics=None, timeout=5.0, connections=16, close=True):
    """What the server answers to each request, over real sockets; a part of a request that is a number is a pause."""

    async def one(port, parts):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):  # who was sent away meanwhile has its answer
            for part in parts if isinstance(parts, list) else [parts]:
                if isinstance(part, bytes):
                    writer.write(part)
                    await writer.drain()
                else:
                    await asyncio.sleep(part)
        if not close:
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    async def all_of_them():
        server = await serve(metrics or Metrics(), healthy, "127.0.0.1", 0, timeout=timeout, connections=connections)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with asyncio.timeout(30):
                return [await one(port, parts) for parts in requests]

    return asyncio.run(all_of_them())


def ask(target, method="GET", **more):
    return talk(f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), **more)[0]


def status(answer):
    return int(re.match(rb"HTTP/1\.1 (\d{3}) [A-Z]", answer)[1])


def parts(answer):
    head, body = answer.split(b"\r\n\r\n", 1)
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    return headers, body


# ---- what is counted


def test_every_metric_has_our_prefix_and_a_help_text():
    families = list(text_string_to_metric_families(Metrics().text().decode()))
    assert len(families) >= 20
    for family in families:
        assert family.name.startswith("gadget_peer_")
        assert family.documentation.endswith(".")


def test_what_is_counted_is_shown():
    metrics = Metrics()
    metrics.messages_sent.inc()
    metrics.bytes_received.inc(100)
    metrics.objective.set(0.25)
    metrics.neighbours.set(4)
    metrics.rtt.observe(0.003)
    metrics.checkpoint_seconds.observe(0.2)
    metrics.checkpoint_failures.inc()
    metrics.info.info({"name": "site-a", "run": "default"})
    shown = samples(metrics)
    assert shown["gadget_peer_messages_sent_total",] == 1
    assert shown["gadget_peer_messages_received_total",] == 0
    assert shown["gadget_peer_bytes_received_total",] == 100
    assert shown["gadget_peer_objective",] == 0.25
    assert shown["gadget_peer_neighbours",] == 4
    assert shown["gadget_peer_rtt_seconds_bucket", "0.0025"] == 0
    assert shown["gadget_peer_rtt_seconds_bucket", "0.005"] == 1
    assert shown["gadget_peer_checkpoint_seconds_sum",] == 0.2
    assert shown["gadget_peer_checkpoint_failures_total",] == 1
    assert shown["gadget_peer_info", "site-a", "default"] == 1


def test_what_is_not_known_yet_is_not_zero():
    shown = samples(Metrics())
    for name in ("objective", "gap_estimate", "disagreement", "checkpoint_timestamp_seconds"):
        assert math.isnan(shown[f"gadget_peer_{name}",])


def test_nobody_outside_can_make_up_series():
    metrics = Metrics()
    for reason in (*REASONS, *(f"reason {i}" for i in range(1000))):
        metrics.refuse(reason)
    shown = {key[1]: value for key, value in samples(metrics).items() if key[0] == "gadget_peer_refused_total"}
    assert shown == dict.fromkeys(REASONS, 1) | {OTHER: 1000}


def test_members_that_are_gone_are_counted_as_none():
    metrics = Metrics()
    metrics.set_members({"alive": 5, "dead": 2})
    metrics.set_members({"alive": 4, "left": 1})
    shown = samples(metrics)
    assert [shown["gadget_peer_members", state] for state in STATES] == [4, 0, 0, 1]


def test_two_peers_in_one_process_count_apart():
    first, second = Metrics(), Metrics()
    first.ticks.inc()
    assert samples(second)["gadget_peer_ticks_total",] == 0


# ---- what is served


def test_metrics_are_served():
    metrics = Metrics()
    metrics.ticks.inc(3)
    answer = ask("/metrics", metrics=metrics)
    headers, body = parts(answer)
    assert status(answer) == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    assert int(headers["Content-Length"]) == len(body)
    assert b"\ngadget_peer_ticks_total 3.0\n" in body


@pytest.mark.parametrize(("state", "code"), [(True, 200), (False, 503)])
def test_health_is_served(state, code):
    answer = ask("/healthz", healthy=lambda: (state, {"gap": math.inf, "neighbours": 2}))
    headers, body = parts(answer)
    assert status(answer) == code
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == {"healthy": state, "gap": None, "neighbours": 2}


@pytest.mark.parametrize("target", ["/metrics", "/healthz", "/nowhere"])
def test_head_is_the_same_without_the_body(target):
    metrics = Metrics()
    asked, got = parts(ask(target, "HEAD", metrics=metrics)), parts(ask(target, metrics=metrics))
    assert asked[1] == b""
    assert asked[0] == got[0]
    assert int(asked[0]["Content-Length"]) == len(got[1]) > 0


@pytest.mark.parametrize("target", ["/metrics?name=x", "/metrics"])
@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_queries_and_old_clients_are_served(target, version):
    assert status(talk(b"GET " + target.encode() + b" " + version + b"\r\n\r\n")[0]) == 200


def test_a_request_in_pieces_and_one_with_its_end_closed_are_served():
    pieces = [b"GET /hea", 0.01, b"lthz HTTP/1.1\r\n", 0.01, b"A: b\r", 0.01, b"\n\r\n"]
    assert status(talk(pieces)[0]) == 200
    assert status(talk(b"GET /healthz HTTP/1.1\r\n\r\n", close=False)[0]) == 200


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET http://x/metrics HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE /healthz HTTP/1.1\r\n\r\n", 405),
        (b"get /healthz HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\xff\r\n\r\n", 400),
        ("GET /metrics/ä HTTP/1.1\r\n\r\n".encode(), 400),
        (b"A" * 8000 + b"\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 9000 + b"\r\n\r\n", 431),
        (b"A" * 60_000, 431),
    ],
    ids=range(17),
)
def test_anything_else_is_refused(request_, code):
    answer = talk(request_)[0]
    assert status(answer) == code
    headers, body = parts(answer)
    assert int(headers["Content-Length"]) == len(body)
    assert headers["Connection"] == "close"
    if code == 405:
        assert headers["Allow"] == "GET, HEAD"


def test_garbage_that_ends_is_refused_and_silence_gets_no_answer():
    assert status(talk(bytes(range(256)), close=False)[0]) == 400
    assert talk(b"", close=False) == [b""]


def test_one_who_asks_too_slowly_is_sent_away():
    drip = [piece for sign in b"GET /metr" for piece in (bytes([sign]), 0.02)]
    drip_answer, silent_answer, good = talk(drip, [], b"GET /healthz HTTP/1.1\r\n\r\n", timeout=0.1)
    assert status(drip_answer) == 408
    assert status(silent_answer) == 408
    assert status(good) == 200


def test_one_who_never_reads_or_hangs_up_is_dropped():
    async def scenario():
        metrics = Metrics()
        metrics.text = lambda: b"x" * (64 << 20)  # more than the sockets hold
        server = await serve(metrics, well, "127.0.0.1", 0, timeout=0.1, connections=1)
        async with server, asyncio.timeout(30):
            port = server.sockets[0].getsockname()[1]
            with socket.create_connection(("127.0.0.1", port)) as lazy:
                lazy.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                while True:  # its place is free again, though it still holds on
                    await asyncio.sleep(0.02)
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
                    answer = await reader.read()
                    writer.close()
                    if status(answer) == 200:
                        return True

    assert asyncio.run(scenario())


def test_too_many_at_a_time_are_told_so_and_served_afterwards():
    async def scenario():
        server = await serve(Metrics(), well, "127.0.0.1", 0, timeout=20, connections=3)
        async with server, asyncio.timeout(30):
            port = server.sockets[0].getsockname()[1]
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for _, writer in idle:
                writer.write(b"GET ")
            crowded = await asked(port)
            for _, writer in idle:
                writer.close()
                await writer.wait_closed()
            while status(later := await asked(port)) != 200:
                await asyncio.sleep(0.01)
            return crowded, later

    async def asked(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    crowded, later = asyncio.run(scenario())
    assert status(crowded) == 503
    assert parts(crowded) == (parts(crowded)[0], b"too many connections\n")
    assert json.loads(parts(later)[1])["healthy"] is True


def test_a_peer_that_cannot_say_how_it_is_is_not_well(caplog):
    def broken():
        raise RuntimeError("secret")

    answer = ask("/healthz", healthy=broken)
    assert status(answer) == 500
    assert b"secret" not in answer
    assert "a page of the metrics server failed" in caplog.text


def test_a_client_that_resets_the_connection_harms_nobody(caplog):
    async def scenario():
        server = await serve(Metrics(), well, "127.0.0.1", 0)
        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        async with server, asyncio.timeout(30):
            port = server.sockets[0].getsockname()[1]
            for request in (b"", b"GET", b"GET /metrics HTTP/1.1\r\n\r\n") * 5:
                rude = socket.create_connection(("127.0.0.1", port))
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing resets
                rude.sendall(request)
                await asyncio.sleep(0.005)
                rude.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer, failures

    answer, failures = asyncio.run(scenario())
    assert status(answer) == 200
    assert failures == []
    assert "Traceback" not in caplog.text


def test_stopping_with_a_connection_open_is_quiet(caplog):
    async def scenario(client):
        server = await serve(Metrics(), well, "127.0.0.1", 0, timeout=20)
        client.connect(server.sockets[0].getsockname())
        client.sendall(b"GET /")
        await asyncio.sleep(0.02)
        server.close()

    with socket.socket() as client:
        asyncio.run(scenario(client))
        assert client.recv(1) == b""
    assert caplog.text == ""


def test_a_port_in_use_names_the_setting():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot serve metrics on 127\.0\.0\.1:{port} .*set \[metrics\] port"):
            asyncio.run(serve(Metrics(), well, "127.0.0.1", port))
