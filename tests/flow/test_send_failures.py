"""Sending to those who are slow, broken, huge or gone: every attempt ends in time, as what it was."""

import asyncio
import errno
import resource
import socket
from collections.abc import Iterator
from time import monotonic

import pytest

from service.domain.model import Answer, Outcome
from service.flow.send import send
from tests import receivers
from tests.flow.egress_parts import SECRET, Names, loopback, names, raw, request
from tests.polling import eventually
from tests.receivers import DISCONNECT, DISCONNECT_MIDWAY, DISCONNECT_UNREAD, ENDLESS, HANG, Receiver, answer, drip

SHORT = 0.5
"""Seconds for attempts that are to run out of time."""


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10737418240\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n",
    ],
)
async def test_a_huge_answer_is_read_to_its_limit_and_its_connection_closed(head: bytes) -> None:
    async with raw(head, b"\x1f" * 1_000_000, then_hang=True) as (url, ends):
        sent = await send(loopback(), request(url))
        assert (sent.outcome, sent.status) == (Outcome.DELIVERED, 200)
        assert sent.excerpt == "\u241f" * 2048
        assert await eventually(lambda: ends) == [b""]


async def test_an_endless_answer_ends_here_and_its_status_decides() -> None:
    async with Receiver(ENDLESS, receivers.Answer(302, manner=receivers.Manner.ENDLESS)) as receiver:
        egress = loopback()
        assert (await send(egress, request(receiver.url))).outcome is Outcome.DELIVERED
        assert (await send(egress, request(receiver.url))).outcome is Outcome.REJECTED
        await eventually(lambda: not receiver.inflight)


async def test_a_body_that_drips_past_the_deadline_is_no_complete_answer() -> None:
    async with Receiver(drip(b"x" * 1000, every=0.05), drip(b"x" * 1000, every=0.05, status=500)) as receiver:
        for status in (200, 500):
            sent = await send(loopback(), request(receiver.url, timeout_seconds=SHORT))
            assert (sent.outcome, sent.status) == (Outcome.TIMEOUT, status)
            assert sent.detail == f"no complete answer in time (it began with status {status})"


async def test_a_body_that_drips_in_time_is_waited_for() -> None:
    async with Receiver(drip(b"slow but sure", every=0.01)) as receiver:
        sent = await send(loopback(), request(receiver.url))
        assert (sent.outcome, sent.excerpt) == (Outcome.DELIVERED, "slow but sure")


async def test_a_head_that_drips_is_a_timeout() -> None:
    async with raw(b"HTTP/1.1 200 OK\r\nx: ", then_hang=True) as (url, _):
        sent = await send(loopback(), request(url, timeout_seconds=SHORT))
    assert (sent.outcome, sent.status) == (Outcome.TIMEOUT, None)


async def test_a_receiver_that_never_answers_is_a_timeout_and_its_connection_is_closed() -> None:
    async with raw(then_hang=True) as (url, ends):
        began = monotonic()
        sent = await send(loopback(), request(url, timeout_seconds=SHORT))
        assert (sent.outcome, sent.detail) == (Outcome.TIMEOUT, "no complete answer in time")
        assert monotonic() - began >= SHORT
        assert await eventually(lambda: ends) == [b""]


@pytest.fixture
def mute() -> Iterator[str]:
    """The URL of a socket that takes connections and never reads."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


async def test_a_receiver_that_never_reads_is_a_timeout(mute: str) -> None:
    sent = await send(loopback(), request(mute, body=b"x" * 16_000_000, timeout_seconds=SHORT))
    assert sent.outcome is Outcome.TIMEOUT


async def test_a_tls_handshake_that_never_comes_is_unreachable(mute: str) -> None:
    sent = await send(loopback(), request(mute.replace("http:", "https:"), timeout_seconds=SHORT))
    assert (sent.outcome, sent.detail) == (Outcome.UNREACHABLE, "connect: timed out")


@pytest.fixture
def blackhole() -> Iterator[str]:
    """The URL of a socket whose queue of connections is full: no further one comes about."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.settimeout(0)
            assert filler.connect_ex(listening.getsockname()) in (0, errno.EINPROGRESS)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        for filler in fillers:
            filler.close()


async def test_a_connection_that_never_comes_about_is_unreachable_and_not_a_timeout(blackhole: str) -> None:
    sent = await send(loopback(), request(blackhole, timeout_seconds=SHORT))
    assert (sent.outcome, sent.detail) == (Outcome.UNREACHABLE, "connect: timed out")


async def test_attempts_given_up_while_connecting_leave_room_for_others(blackhole: str) -> None:
    egress = loopback()
    lost = [asyncio.create_task(send(egress, request(blackhole))) for _ in range(200)]
    async with Receiver() as receiver:
        await send(egress, request(receiver.url))
        for task in lost:
            task.cancel()
        ended = await asyncio.gather(*lost, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        assert (await send(egress, request(receiver.url))).outcome is Outcome.DELIVERED


async def test_a_closed_port_is_unreachable() -> None:
    async with Receiver() as receiver:
        url = receiver.url
    sent = await send(loopback(), request(url))
    assert (sent.outcome, sent.detail) == (Outcome.UNREACHABLE, "connect: refused")


@pytest.mark.parametrize(
    ("manner", "status"), [(DISCONNECT, None), (DISCONNECT_UNREAD, None), (DISCONNECT_MIDWAY, 200)]
)
async def test_a_connection_lost_after_the_request_went_out_is_disconnected(
    manner: receivers.Answer, status: int | None
) -> None:
    async with Receiver(manner) as receiver:
        sent = await send(loopback(), request(receiver.url))
    assert (sent.outcome, sent.status) == (Outcome.DISCONNECTED, status)


GARBAGE = {
    b"SSH-2.0-OpenSSH_9.2\r\n": "not HTTP",
    b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n": "not HTTP",
    b"HTTP/1.1 099 X\r\n\r\n": "not HTTP",
    b"HTTP/1.1 200 OK\r\nx: " + b"a" * 1_000_000 + b"\r\n\r\n": "headers are too large",
    b"HTTP/1.1 200 OK\r\n" + b"x: a\r\n" * 1000 + b"\r\n": "headers are too large",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n": "not framed",
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n": "another protocol",
    b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc": "before the answer was complete",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc": "before the answer was complete",
}


@pytest.mark.parametrize(("said", "told"), GARBAGE.items(), ids=range(len(GARBAGE)))
async def test_what_is_no_complete_http_answer_is_disconnected(said: bytes, told: str) -> None:
    async with raw(said) as (url, _):
        sent = await send(loopback(), request(url))
    assert sent.outcome is Outcome.DISCONNECTED
    assert told in str(sent.detail)


async def test_interim_answers_are_passed_over() -> None:
    final = b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok"
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
    async with raw(interim, final) as (url, _):
        sent = await send(loopback(), request(url))
    assert (sent.outcome, sent.status, sent.excerpt) == (Outcome.DELIVERED, 202, "ok")


async def test_an_answer_that_is_no_text_is_kept_in_a_form_that_can_be_stored() -> None:
    async with Receiver(answer(500, body=b"\x00\xff\x1b[0m\xed\xa0\x80 tail")) as receiver:
        sent = await send(loopback(), request(receiver.url))
    assert sent.excerpt == "\u2400\ufffd\u241b[0m\ufffd\ufffd\ufffd tail"


async def test_a_name_that_is_not_there_is_unreachable() -> None:
    sent = await send(loopback(Names({})), request("https://gone.test/"))
    assert (sent.outcome, sent.detail) == (Outcome.UNREACHABLE, "dns: no such name")


async def test_a_name_server_that_hangs_costs_no_more_than_the_attempts_time() -> None:
    resolve = Names({}, hold=asyncio.Event())
    sent = await send(loopback(resolve), request("https://stuck.test/", timeout_seconds=SHORT))
    assert (sent.outcome, sent.detail) == (Outcome.UNREACHABLE, "dns: no answer within the attempt's time")


async def test_what_the_look_up_used_is_missing_from_the_rest_of_the_attempt() -> None:
    async def slow(_host: str, _port: int) -> list[str]:
        await asyncio.sleep(SHORT - 0.1)
        return ["127.0.0.1"]

    async with Receiver(HANG) as receiver:
        url = f"http://hooks.test:{receiver.port}/"
        began = monotonic()
        sent = await send(loopback(slow), request(url, timeout_seconds=SHORT))  # type: ignore[arg-type]
        took = monotonic() - began
    assert sent.outcome is Outcome.TIMEOUT
    assert took < 2 * SHORT - 0.1


async def test_cancelling_an_attempt_passes_through_at_once_and_its_own_time_closes_the_connection() -> None:
    async with raw(then_hang=True) as (url, ends):
        task = asyncio.create_task(send(loopback(), request(url, timeout_seconds=2 * SHORT)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, SHORT)
        assert ends == []
        assert await eventually(lambda: ends) == [b""]


async def test_cancelling_while_the_body_is_read_closes_the_connection() -> None:
    async with raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", then_hang=True) as (url, ends):
        task = asyncio.create_task(send(loopback(), request(url, timeout_seconds=60)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, SHORT)
        assert await eventually(lambda: ends) == [b""]


async def test_running_out_of_file_handles_is_our_own_fault() -> None:
    async with Receiver(answer(200, headers={"connection": "close"})) as receiver:
        egress = loopback()
        assert (await send(egress, request(receiver.url))).outcome is Outcome.DELIVERED
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            sent = await send(egress, request(receiver.url))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sent.outcome is Outcome.INTERNAL
    assert "too many open files" in str(sent.detail)


async def test_no_answer_holds_anything_of_the_url_or_of_a_secret() -> None:
    path = "/services/T/B/SECRET?token=S3CRET"
    scripts = [answer(200), answer(302, headers={"location": path}), answer(500), HANG, DISCONNECT, DISCONNECT_MIDWAY]
    egress = loopback(names(hooks=["127.0.0.1"], inside=["10.0.0.1"]))
    async with Receiver(*scripts) as receiver:
        wanted = [request(receiver.url + path, timeout_seconds=SHORT) for _ in scripts]
        hosts = ("http://127.0.0.1:1", "http://2130706433", "http://inside.test", "http://gone.test")
        urls = [host + path for host in (*hosts, f"https://hooks.test:{receiver.port}")]
        wanted += [request(url, timeout_seconds=SHORT) for url in urls]
        wanted += [request(receiver.url + path, headers={"host": "SECRET"})]
        kept: list[Answer] = [await send(egress, one) for one in wanted]
    assert len({one.outcome for one in kept}) >= 7
    for answered in kept:
        assert "SECRET" not in repr(answered)
        assert "S3CRET" not in repr(answered)
    for one in wanted:
        assert "SECRET" not in repr(one)
        assert SECRET.decode() not in repr(one)
