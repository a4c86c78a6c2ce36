"""Connections on real sockets: nothing is smuggled, nothing is read without end, nobody waits or stays for ever."""

import asyncio
import json
import re
import resource
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from structlog.testing import capture_logs

from service.web import connections
from service.web.app import create_app
from service.web.connections import HEAD_BYTES, MAX_CHUNKS, Door
from tests.polling import eventually
from tests.web.conftest import BOOTSTRAP_KEY, JOB, Api

MEGABYTE = 1024 * 1024
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: tocsin\r\n\r\n"
LAST = b"GET /livez HTTP/1.1\r\nHost: tocsin\r\nConnection: close\r\n\r\n"
EVENT = b'{"type": "a.b", "subject": "s", "version": 1, "data": {}}'
AUTH = f"Authorization: Bearer {BOOTSTRAP_KEY}\r\n".encode()
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"

Address = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def everything(address: Address, *parts: bytes) -> bytes:
    """All that comes back until the other side hangs up."""
    async with connected(address) as (reader, writer):
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read()


def refused(answer: bytes, status: int, slug: str) -> str:
    """The detail of the problem that has to be the one answer and the last."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ", 2)[1] == str(status).encode()
    assert b"connection: close" in head.lower()
    assert b"content-type: application/problem+json" in head.lower()
    document = json.loads(body)
    assert (document["status"], document["type"]) == (status, f"/problems/{slug}")
    return str(document["detail"])


def post(path: str, body: bytes, *headers: bytes, length: bool = True) -> bytes:
    sized = f"Content-Length: {len(body)}\r\n".encode() if length else b""
    return f"POST {path} HTTP/1.1\r\nHost: tocsin\r\n".encode() + AUTH + b"".join(headers) + sized + b"\r\n" + body


async def test_a_body_behind_an_offer_to_upgrade_is_the_body_and_no_second_request(api: Api, address: Address) -> None:
    inner = b"DELETE /v1/subscribers/victim HTTP/1.1\r\nHost: tocsin\r\n" + AUTH + b"\r\n"
    for upgrade in (H2C, b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"):
        head = post("/v1/events", b"", upgrade, b"Content-Length: %d\r\n" % len(inner), length=False)
        for parts in ((head + inner + LAST,), (head, inner, LAST)):
            answers = await everything(address, *parts)
            assert re.findall(rb"HTTP/1\.1 (...) ", answers) == [b"400", b"200"]
            assert b"/problems/not-json" in answers
    assert not any((await api.rows()).values())


async def test_a_client_that_offers_http2_is_served_with_its_body(api: Api, address: Address) -> None:
    curl = await asyncio.create_subprocess_exec(
        *("curl", "--http2", "--silent", "--noproxy", "*", "--max-time", "10", "--write-out", "%{http_code}"),
        *("--header", AUTH.decode().strip(), "--data-binary", EVENT.decode()),
        f"http://{address[0]}:{address[1]}/v1/events",
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await curl.communicate()
    assert out.endswith(b"201")
    assert (await api.rows())["events"] == 1


async def test_a_body_whose_end_is_disputed_is_refused(api: Api, address: Address) -> None:
    chunked = b"0\r\n\r\n" + LIVEZ
    both = post("/v1/events", b"", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 4\r\n", length=False)
    assert "Content-Length" in refused(await everything(address, both + chunked), 400, "malformed")
    old = post("/v1/events", b"", b"Transfer-Encoding: chunked\r\n", length=False).replace(b"HTTP/1.1", b"HTTP/1.0")
    refused(await everything(address, old + chunked), 400, "malformed")
    assert not any((await api.rows()).values())


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1",
        b"GET /livez\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        LIVEZ.replace(b"\r\n\r\n", b"\r\nHost: other\r\n\r\n"),
        LIVEZ.replace(b"\r\n\r\n", b"\r\nX: a\x00b\r\n\r\n"),
        LIVEZ.replace(b"\r\n\r\n", b"\r\nX : a\r\n\r\n"),
        LIVEZ.replace(b"/livez", b"/liv\xff"),
        post("/v1/events", b"{}1", b"Content-Length: 3\r\n", b"Content-Length: 2\r\n", length=False),
        post("/v1/events", b"{}", b"Content-Length: +2\r\n", length=False),
        post("/v1/events", b"{}", b"Transfer-Encoding: chunked, gzip\r\n", length=False),
        post("/v1/events", b"zz\r\n{}\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\n", length=False),
    ],
)
async def test_what_is_no_http_is_a_problem_like_any_other(api: Api, address: Address, request_: bytes) -> None:
    refused(await everything(address, request_), 400, "malformed")
    assert not any((await api.rows()).values())


async def test_a_refused_head_request_gets_a_head_only(address: Address) -> None:
    answer = await everything(address, LAST.replace(b"GET /livez HTTP/1.1", b"HEAD /livez HTTP/2.0"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\n")


async def test_an_absolute_target_is_read_as_its_path(address: Address) -> None:
    for target in (b"http://tocsin/livez", b"HTTP://tocsin/livez?x=1"):
        assert (await everything(address, LAST.replace(b"/livez", target))).startswith(b"HTTP/1.1 200 ")
    assert (await everything(address, LAST.replace(b"/livez", b"http://tocsin"))).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("flood", [b"a" * 65_536, b"x: y\r\n" * 10_000, b" folded\r\n" * 8_000])
async def test_a_head_without_end_is_cut_off_and_not_kept(address: Address, flood: bytes) -> None:
    """The caller goes on sending; whether it still sees the 431 depends on who is faster."""

    async def pour(writer: asyncio.StreamWriter) -> int:
        sent = 0
        while sent < 64 * MEGABYTE:
            writer.write(flood)
            try:
                await writer.drain()
            except ConnectionError:
                break
            sent += len(flood)
        return sent

    tracemalloc.start()
    try:
        async with connected(address) as (_, writer):
            writer.write(LIVEZ[:-2] + b"X: ")
            assert await pour(writer) < 64 * MEGABYTE
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MEGABYTE


async def test_a_head_may_be_so_large_and_no_larger(address: Address) -> None:
    fitting = LAST[:-2] + b"X: " + b"a" * (HEAD_BYTES - 200) + b"\r\n\r\n"
    assert (await everything(address, fitting)).startswith(b"HTTP/1.1 200 ")
    refused(await everything(address, LAST[:-2] + b"X: " + b"a" * HEAD_BYTES), 431, "head-too-large")


async def test_a_body_in_crumbs_is_refused(address: Address) -> None:
    crumbs = post("/v1/events", b"1\r\n \r\n" * (MAX_CHUNKS + 1), b"Transfer-Encoding: chunked\r\n", length=False)
    assert "chunks" in refused(await everything(address, crumbs), 400, "malformed")


async def test_whoever_does_not_ask_in_time_is_disconnected(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    assert await everything(address) == b""
    assert await everything(address, LIVEZ[:20]) == b""
    async with connected(address) as (reader, writer):
        dripping = asyncio.create_task(_drip(writer, LIVEZ[:-2] + b"X: "))
        assert await reader.read() == b""
        dripping.cancel()
    served = await everything(address, LIVEZ, LIVEZ[:20])
    assert served.count(b"HTTP/1.1 200 ") == 1


async def test_an_answer_that_takes_long_is_waited_for(
    api: Api, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()

    async def waits(*_: object) -> str:
        await goes_on.wait()
        return ""

    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr("service.web.health.views.schema_revision", waits)
    monkeypatch.setattr("service.web.health.READY_SECONDS", 0.5)
    async with connected(address) as (reader, writer):
        writer.write(LAST.replace(b"/livez", b"/readyz"))
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
    goes_on.set()
    assert (await api.client.get("/livez")).status_code == 200


async def test_whoever_does_not_read_the_answers_is_disconnected(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_SECONDS", 0.3)
    request = LIVEZ.replace(b"/livez", b"/openapi.json")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(0)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(deaf, address)

        async def ask() -> None:
            while True:
                await loop.sock_sendall(deaf, request * 100)

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(ask(), 20)


@asynccontextmanager
async def served(api: Api, most: int) -> AsyncIterator[Address]:
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(Door(create_app(api.house), most=most))
    serving = asyncio.create_task(server._serve([bound]))
    try:
        yield bound.getsockname()[:2]
    finally:
        server.should_exit = server.force_exit = True
        await serving
        bound.close()


async def test_one_connection_too_many_is_told_so_and_others_go_on(api: Api) -> None:
    async with served(api, most=4) as address:
        with capture_logs() as lines:
            silent = [await asyncio.open_connection(*address) for _ in range(4)]
            await eventually(lambda: _says(address, b"HTTP/1.1 503 "))
            detail = refused(await everything(address), 503, "unavailable")
            assert "connections" in detail
            silent[0][1].write(LIVEZ)
            assert (await silent[0][0].readline()).startswith(b"HTTP/1.1 200 ")
            for _, writer in silent:
                writer.transport.abort()
            await eventually(lambda: _says(address, b"HTTP/1.1 200 "))
    assert [line["log_level"] for line in lines if line["event"] == "api.connections_refused"] == ["warning"]


async def test_the_cap_leaves_descriptors_for_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((256, 128), (1024, 512), (1_048_576, 10_000), (resource.RLIM_INFINITY, 10_000)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections.most_connections() == most


async def test_a_caller_that_resets_the_connection_leaves_nothing_behind(api: Api, address: Address) -> None:
    for part in (b"", LIVEZ[:9], LIVEZ, post(f"/v1/jobs/{JOB}/pause", b"")[:-4]):
        with socket.create_connection(address) as rude:
            rude.sendall(part)
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert (await everything(address, LAST)).startswith(b"HTTP/1.1 200 ")
    assert not any((await api.rows()).values())


async def _says(address: Address, beginning: bytes) -> bool:
    try:
        return (await everything(address, LAST)).startswith(beginning)
    except ConnectionError:
        return False


async def _drip(writer: asyncio.StreamWriter, parts: Iterable[int]) -> None:
    for byte in parts:
        writer.write(bytes([byte]))
    while True:
        writer.write(b"a")
        await asyncio.sleep(0.02)
