"""The receiver of the tests does what its script says."""

import asyncio

import httpx
import pytest

from tests.polling import eventually
from tests.receivers import DISCONNECT, DISCONNECT_MIDWAY, DISCONNECT_UNREAD, ENDLESS, HANG, Receiver, answer, drip


async def test_answers_are_used_up_in_order_and_then_the_last_resort_is_given_for_ever() -> None:
    script = (answer(429, headers={"retry-after": "1"}), answer(500, body=b"oops"))
    async with Receiver(*script, then=answer(204)) as receiver, httpx.AsyncClient() as client:
        answers = [await client.post(f"{receiver.url}/hook", content=b"x") for _ in range(4)]
    assert [it.status_code for it in answers] == [429, 500, 204, 204]
    assert answers[0].headers["retry-after"] == "1"
    assert answers[1].content == b"oops"


async def test_requests_are_remembered_as_they_came() -> None:
    async with Receiver() as receiver, httpx.AsyncClient() as client:
        await client.post(f"{receiver.url}/a?b=1", content=b"\x00\xff", headers={"Webhook-Id": "one"})
        (request,) = await receiver.received(1)
    assert (request.method, request.target, request.body) == ("POST", "/a?b=1", b"\x00\xff")
    assert request.header("webhook-id") == "one"
    assert receiver.with_header("webhook-id", "one") == [request]


async def test_a_chunked_request_is_read_whole() -> None:
    async def pieces() -> "asyncio.AsyncIterator[bytes]":  # type: ignore[name-defined]
        yield b"ab"
        yield b"cd"

    async with Receiver() as receiver, httpx.AsyncClient() as client:
        await client.post(receiver.url, content=pieces())
    assert receiver.requests[0].body == b"abcd"


@pytest.mark.parametrize("how", [DISCONNECT, DISCONNECT_UNREAD, DISCONNECT_MIDWAY], ids=lambda it: it.manner.value)
async def test_a_connection_can_be_cut(how: object) -> None:
    async with Receiver(how) as receiver, httpx.AsyncClient() as client:  # type: ignore[arg-type]
        with pytest.raises(httpx.TransportError):
            await client.post(receiver.url, content=b"x" * 10)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("how", [HANG, ENDLESS, drip(b"x" * 1000, every=0.05)], ids=lambda it: it.manner.value)
async def test_an_answer_may_never_come_to_its_end(how: object) -> None:
    async with Receiver(how) as receiver, httpx.AsyncClient() as client:  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.post(receiver.url)
        await eventually(lambda: receiver.requests)


async def test_an_answer_can_be_held_back_until_the_test_says_so() -> None:
    gate = asyncio.Event()
    async with Receiver(then=answer(200, hold=gate)) as receiver, httpx.AsyncClient() as client:
        posts = [asyncio.create_task(client.post(receiver.url)) for _ in range(3)]
        await receiver.received(3)
        assert (receiver.inflight, receiver.peak) == (3, 3)
        gate.set()
        assert {(await it).status_code for it in posts} == {200}
    assert receiver.inflight == 0


async def test_what_never_becomes_true_fails_with_the_last_answer() -> None:
    with pytest.raises(AssertionError, match=r"last answer: 0"):
        await eventually(lambda: 0, seconds=0.01)
