"""Request bodies on the wire: too large, too slow, compressed, cut off; refused early, and never held in memory."""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from service.web import bodies
from tests.web.conftest import BOOTSTRAP_KEY, JOB, Api, tick

MEGABYTE = 1024 * 1024
TICKS = f"POST /v1/jobs/{JOB}/ticks HTTP/1.1\r\nHost: tocsin\r\n"
EVENTS = f"POST /v1/events HTTP/1.1\r\nHost: tocsin\r\nAuthorization: Bearer {BOOTSTRAP_KEY}\r\n"
PAUSE = f"POST /v1/jobs/{JOB}/pause HTTP/1.1\r\nHost: tocsin\r\nAuthorization: Bearer {BOOTSTRAP_KEY}\r\n"

Address = tuple[str, int]


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def status_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status of the next answer, and its head."""
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head


async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, parts: Iterable[bytes]) -> tuple[int, bytes]:
    """The answer to a request that is sent part by part for as long as anybody takes it."""

    async def send() -> None:
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
        except ConnectionError:
            return

    sending = asyncio.create_task(send())
    try:
        return await status_of(reader)
    finally:
        sending.cancel()


@pytest.mark.parametrize(
    ("head", "limit"),
    [(TICKS, bodies.TICK_BYTES), (EVENTS, bodies.EVENT_BYTES), (PAUSE, bodies.OTHER_BYTES)],
    ids=["tick", "event", "other"],
)
async def test_one_byte_too_many_is_refused_and_disconnected(api: Api, address: Address, head: str, limit: int) -> None:
    announced = f"{head}Content-Length: {limit + 1}\r\n\r\n".encode()
    async with connected(address) as (reader, writer):
        status, answer = await said(reader, writer, [announced])
        assert (status, b"connection: close" in answer.lower()) == (413, True)
    streamed = [f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), chunk(b" " * limit), chunk(b" ")]
    async with connected(address) as (reader, writer):
        status, answer = await said(reader, writer, streamed)
        assert (status, b"connection: close" in answer.lower()) == (413, True)
    fitting = [f"{head}Content-Length: {limit}\r\n\r\n".encode(), b" " * limit]
    async with connected(address) as (reader, writer):
        status, _ = await said(reader, writer, fitting)
        assert status == 400
    assert not any((await api.rows()).values())


@pytest.mark.parametrize(
    ("piece", "refusal"),
    [(chunk(b" " * MEGABYTE), 413), (chunk(b" ") * 4096, 400)],
    ids=["large chunks", "chunks of one byte"],
)
async def test_a_body_without_end_is_cut_off_while_it_streams(address: Address, piece: bytes, refusal: int) -> None:
    def endless() -> Iterable[bytes]:
        yield f"{TICKS}Transfer-Encoding: chunked\r\n\r\n".encode()
        while True:
            yield piece

    tracemalloc.start()
    try:
        async with connected(address) as (reader, writer):
            status, _ = await said(reader, writer, endless())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == refusal
    assert peak < 8 * MEGABYTE


async def test_a_body_of_64_megabytes_with_its_length_is_refused_by_its_head(address: Address) -> None:
    async with connected(address) as (reader, writer):
        status, _ = await said(reader, writer, [f"{TICKS}Content-Length: {64 * MEGABYTE}\r\n\r\n".encode()])
        assert status == 413


@pytest.mark.parametrize("length", ["abc", "-1", "1e3", "9" * 40])
async def test_a_content_length_that_is_none_is_refused(address: Address, length: str) -> None:
    async with connected(address) as (reader, writer):
        status, _ = await said(reader, writer, [f"{TICKS}Content-Length: {length}\r\n\r\n{{}}".encode()])
        assert status in (400, 413)


async def test_a_body_that_drips_is_given_up(api: Api, address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "DEADLINE_SECONDS", 0.3)
    async with connected(address) as (reader, writer):
        writer.write(f"{TICKS}Content-Length: 1000\r\n\r\n".encode())
        dripping = asyncio.create_task(_drip(writer))
        status, head = await status_of(reader)
        dripping.cancel()
        assert (status, b"connection: close" in head.lower()) == (408, True)
        rest = await reader.read()
        assert rest.endswith(b"}")
    assert not any((await api.rows()).values())


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b" ")
        await asyncio.sleep(0.02)


async def test_a_caller_that_hangs_up_in_the_middle_leaves_nothing_behind(api: Api, address: Address) -> None:
    async with connected(address) as (_, writer):
        writer.write(f'{TICKS}Content-Length: 1000\r\n\r\n{{"runId"'.encode())
        await writer.drain()
    answer = await api.client.get("/livez")
    assert answer.status_code == 200
    assert not any((await api.rows()).values())


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "identity, gzip", "x"])
async def test_a_compressed_body_is_refused_unread(refusing: Api, encoding: str) -> None:
    bomb = gzip.compress(b"0" * MEGABYTE)
    headers = {"content-encoding": encoding}
    answer = await refusing.client.post(f"/v1/jobs/{JOB}/ticks", content=bomb[:1000], headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (415, "/problems/unsupported-encoding")


async def test_identity_is_no_compression(api: Api) -> None:
    headers = {"content-encoding": "identity"}
    answer = await api.client.post(f"/v1/jobs/{JOB}/ticks", content=json.dumps(tick()), headers=headers)
    assert answer.status_code == 202


async def test_a_tick_in_pieces_is_a_tick(address: Address) -> None:
    raw = json.dumps(tick()).encode()
    parts = [chunk(raw[at : at + 7]) for at in range(0, len(raw), 7)]
    async with connected(address) as (reader, writer):
        status, head = await said(
            reader, writer, [f"{TICKS}Transfer-Encoding: chunked\r\n\r\n".encode(), *parts, chunk(b"")]
        )
        assert (status, b"connection: close" in head.lower()) == (202, False)


async def test_whoever_is_refused_before_the_body_was_read_is_disconnected(address: Address) -> None:
    head = "POST /v1/events HTTP/1.1\r\nHost: tocsin\r\nContent-Length: 1000000000\r\n\r\n"
    async with connected(address) as (reader, writer):
        status, answer = await said(reader, writer, [head.encode()])
        assert (status, b"connection: close" in answer.lower()) == (401, True)


async def test_a_connection_goes_on_after_an_answer_whose_body_was_read(address: Address) -> None:
    refused = b'{"a":1}'
    request = f"{TICKS}Content-Length: {len(refused)}\r\n\r\n".encode() + refused
    async with connected(address) as (reader, writer):
        for _ in range(2):
            status, head = await said(reader, writer, [request])
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            assert status == 422
