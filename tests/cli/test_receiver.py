"""The sample receiver: verifies, deduplicates, answers by script; and the code that docs/receivers.md shows."""

import asyncio
import json
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from service.cli.answers import parse
from service.cli.receiving import Receiver, Verdict
from service.domain.signing import decode_secret, new_secret
from tests.cli import inside
from tests.cli.process import ROOT, started

SECRET = new_secret(b"s" * 32)
BODY = b'{"id":"e","data":{"amount":1.0}}'


def signed(key: str = "e:guild", *, secret: str = SECRET, body: bytes = BODY, age: float = 0) -> dict[str, str]:
    """The headers of a webhook, signed by the reference library."""
    at = datetime.fromtimestamp(time.time() - age, tz=UTC)
    signature = Webhook(secret).sign(key, at, body.decode())
    return {"webhook-id": key, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


Talk = tuple[httpx.AsyncClient, list[Verdict]]


@asynccontextmanager
async def receiving(script: str, *, secret: str | None = SECRET) -> AsyncIterator[Talk]:
    """A receiver on a free port, a client for it, and the verdicts that it gives."""
    verdicts: list[Verdict] = []
    receiver = Receiver(parse(script), secrets=[decode_secret(secret)] if secret else (), report=verdicts.append)
    await receiver.start()
    base = f"http://127.0.0.1:{receiver.port}"
    try:
        async with httpx.AsyncClient(base_url=base, timeout=0.3, trust_env=False) as client:
            yield client, verdicts
    finally:
        await receiver.close()


async def test_throttle_then_lost_acknowledgement_then_duplicate() -> None:
    async with receiving("429:5,timeout,200") as (client, verdicts):
        throttled = await client.post("/", content=BODY, headers=signed())
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/", content=BODY, headers=signed())
        acknowledged = await client.post("/", content=BODY, headers=signed())
        other = await client.post("/", content=BODY, headers=signed("another:guild"))
    assert (throttled.status_code, throttled.headers["retry-after"]) == (429, "5")
    assert (acknowledged.status_code, other.status_code) == (200, 429)
    assert [(verdict.request, verdict.duplicate) for verdict in verdicts] == [
        (1, False),
        (2, False),
        (3, True),
        (1, False),
    ]
    assert all(verdict.fault is None and verdict.checked for verdict in verdicts)


async def test_hanging_up_loses_the_acknowledgement_only() -> None:
    async with receiving("disconnect,200") as (client, verdicts):
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/", content=BODY, headers=signed())
        assert (await client.post("/", content=BODY, headers=signed())).status_code == 200
    assert [verdict.duplicate for verdict in verdicts] == [False, True]


async def test_a_refusing_port_is_kept_and_accepts_nothing() -> None:
    async with receiving("refuse") as (client, verdicts):
        with pytest.raises(httpx.ConnectError):
            await client.post("/", content=BODY, headers=signed())
    assert verdicts == []


@pytest.mark.parametrize(
    ("how", "changes", "words"),
    [
        ({"secret": new_secret(b"t" * 32)}, {}, "not made with this secret"),
        ({"body": BODY + b" "}, {}, "not made with this secret"),
        ({}, {"webhook-id": "e:other"}, "not made with this secret"),
        ({}, {"webhook-signature": ""}, "is missing"),
        ({}, {"webhook-signature": "v1,é".encode().decode("latin-1")}, "not made with this secret"),
        ({}, {"webhook-timestamp": "now"}, "no number"),
        ({}, {"webhook-timestamp": "٥"}, "no number"),
        ({"age": 400}, {}, "away from this clock"),
        ({"age": -400}, {}, "away from this clock"),
    ],
)
async def test_what_is_not_signed_right_is_refused_and_not_applied(
    how: dict[str, Any], changes: dict[str, str], words: str
) -> None:
    headers = signed(**how) | changes
    raw = [(name.encode(), value.encode("utf-8")) for name, value in headers.items()]
    async with receiving("200") as (client, verdicts):
        refused = await client.post("/", content=BODY, headers=raw)
        right = await client.post("/", content=BODY, headers=signed())
    assert (refused.status_code, right.status_code) == (401, 200)
    assert words in (verdicts[0].fault or "")
    assert not verdicts[1].duplicate


async def test_a_webhook_signed_with_two_secrets_is_accepted_by_who_knows_one() -> None:
    old, new = new_secret(b"o" * 32), SECRET
    headers = signed(secret=new)
    headers["webhook-signature"] = f"{signed(secret=old)['webhook-signature']} {headers['webhook-signature']}"
    async with receiving("200") as (client, _):
        assert (await client.post("/", content=BODY, headers=headers)).status_code == 200


async def test_a_request_without_a_key_or_too_large_is_refused() -> None:
    async with receiving("200", secret=None) as (client, verdicts):
        assert (await client.post("/", content=BODY)).status_code == 400
        assert (await client.post("/", content=b"x" * 1_100_000, headers={"webhook-id": "e"})).status_code == 413
        assert (await client.post("/", content=BODY, headers={"webhook-id": "e"})).status_code == 200
    assert [verdict.checked for verdict in verdicts] == [False, False]


async def test_junk_on_the_wire_is_answered_and_the_connection_closed() -> None:
    async with receiving("200") as (client, _):
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(b"\x16\x03\x01 this is TLS to a plain port\r\n\r\n")
        assert b" 400 " in await reader.readline()
        await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_the_command_prints_each_verdict_as_json_and_stops_with_exit_code_0(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    arguments = ("receiver", "--port", "0", "--secret", "file:secret", "--answers", "503,200", "--json")
    async with started(*arguments, env={}, cwd=tmp_path) as process:
        url = re.search(r"http://\S+", await process.said("Receiving on"))
        assert url is not None
        async with httpx.AsyncClient(trust_env=False) as client:
            statuses = [(await client.post(url[0], content=BODY, headers=signed())).status_code for _ in range(2)]
        await process.said('"applied": true')
        process.signal(signal.SIGINT)
        assert await process.ended() == 0
    printed = [json.loads(line) for line in process.out]
    assert statuses == [503, 200]
    assert [(line["answer"], line["signature"], line["applied"]) for line in printed] == [
        ("503", "ok", False),
        ("200", "ok", True),
    ]


def test_a_secret_on_the_command_line_is_refused_without_repeating_it() -> None:
    given = inside.run("receiver", "--secret", SECRET)
    assert given.code == 1
    assert "env:NAME or file:PATH" in given.err
    assert SECRET.removeprefix("whsec_") not in given.err


def test_the_code_in_docs_receivers_verifies_what_tocsin_signs_and_nothing_else() -> None:
    page = (ROOT / "docs/receivers.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/receivers.md", "exec"), names)  # noqa: S102
    names["verify"](signed(), BODY, SECRET)
    stranger = signed(secret=new_secret(b"t" * 32))
    for headers, body in ((signed(), BODY + b"\n"), (signed(age=400), BODY), (stranger, BODY)):
        with pytest.raises(ValueError, match=r"too old|wrong signature"):
            names["verify"](headers, body, SECRET)


async def test_a_body_behind_an_offer_to_upgrade_is_the_body_and_no_second_request() -> None:
    inner = b"POST / HTTP/1.1\r\nhost: r\r\nwebhook-id: smuggled\r\ncontent-length: 0\r\n\r\n"
    async with receiving("200", secret=None) as (client, verdicts):
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        head = "POST / HTTP/1.1\r\nhost: r\r\nwebhook-id: e\r\nconnection: upgrade\r\nupgrade: h2c\r\n"
        writer.write(f"{head}expect: 100-continue\r\ncontent-length: {len(inner)}\r\n\r\n".encode())
        assert b" 100 " in await reader.readline()
        writer.write(inner + b"HEAD / HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n")
        answers = await reader.read()
        writer.close()
    assert re.findall(rb"HTTP/1\.1 (...) ", answers) == [b"200", b"400"]
    assert [verdict.key for verdict in verdicts] == ["e", ""]


async def test_requests_behind_one_that_is_hung_on_wait_and_a_head_without_end_is_refused() -> None:
    request = b"POST / HTTP/1.1\r\nhost: r\r\nwebhook-id: e\r\ncontent-length: 0\r\n\r\n"
    async with receiving("204,hang", secret=None) as (client, verdicts):
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        writer.write(request * 4)
        assert b" 204 " in await reader.readline()
        other = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        other[1].write(b"POST / HTTP/1.1\r\nx: " + b"a" * 70_000)
        assert b" 431 " in await other[0].readline()
        writer.close()
        other[1].close()
    assert [verdict.request for verdict in verdicts] == [1, 2]
