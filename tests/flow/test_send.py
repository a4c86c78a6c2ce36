"""Sending: what a receiver gets, and what its answer becomes."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import standardwebhooks

from service import __version__
from service.domain.model import Outcome
from service.domain.signing import new_secret
from service.flow.send import send, sign_headers
from tests.flow.egress_parts import BODY, EVENT, SECRET, loopback, request
from tests.receivers import Receiver, answer

ORACLE = standardwebhooks.Webhook(new_secret(SECRET))


async def test_a_receiver_gets_the_exact_bytes_and_every_header_of_the_contract() -> None:
    async with Receiver() as receiver:
        sent = await send(loopback(), request(f"{receiver.url}/hook?a=b", attempt=3, generation=2, run_id="the-run"))
        (got,) = receiver.requests
    assert (sent.outcome, sent.status, sent.detail, sent.disable) == (Outcome.DELIVERED, 200, None, False)
    assert (got.method, got.target, got.body) == ("POST", "/hook?a=b", BODY)
    timestamp = int(got.headers["webhook-timestamp"])
    assert abs(datetime.now(UTC).timestamp() - timestamp) < 60
    version, trace, span, flags = got.headers["traceparent"].split("-")
    assert (version, trace, len(span), flags) == ("00", EVENT.replace("-", ""), 16, "01")
    fixed = {
        "content-type": "application/json",
        "content-length": str(len(BODY)),
        "user-agent": f"Tocsin/{__version__}",
        "webhook-id": f"{EVENT}:acme",
        "idempotency-key": f"{EVENT}:acme",
        "tocsin-generation": "2",
        "tocsin-attempt": "3",
        "tocsin-run": "the-run",
        "accept": "*/*",
        "host": f"127.0.0.1:{receiver.port}",
    }
    assert fixed.items() <= got.headers.items()
    assert set(got.headers) == {*fixed, "webhook-timestamp", "webhook-signature", "traceparent"}
    assert [name for name, _ in got.raw_headers] == [name.lower() for name, _ in got.raw_headers]
    assert ORACLE.verify(got.body, got.headers) == json.loads(BODY)


async def test_a_receiver_that_repeats_its_credentials_does_not_put_them_on_record() -> None:
    body = b'{"error": "unknown token s3cr3t-of-query for Bearer s3cr3t-of-header"}'
    async with Receiver(answer(401, body=body)) as receiver:
        headers = {"authorization": "Bearer s3cr3t-of-header"}
        sent = await send(loopback(), request(f"{receiver.url}/hook?t=s3cr3t-of-query", headers=headers))
    assert sent.excerpt == '{"error": "unknown token *** for ***"}'


async def test_an_event_without_a_run_has_no_run_header() -> None:
    async with Receiver() as receiver:
        await send(loopback(), request(receiver.url))
        assert receiver.requests[0].header("tocsin-run") is None


async def test_key_body_and_trace_stay_over_attempts_while_the_span_is_new() -> None:
    async with Receiver(answer(500), answer(500)) as receiver:
        egress = loopback()
        for attempt in (1, 2, 3):
            await send(egress, request(receiver.url, attempt=attempt))
        got = receiver.requests
    assert {one.header("webhook-id") for one in got} == {f"{EVENT}:acme"}
    assert {one.body for one in got} == {BODY}
    assert [one.header("tocsin-attempt") for one in got] == ["1", "2", "3"]
    parents = [one.headers["traceparent"].split("-") for one in got]
    assert len({trace for _, trace, *_ in parents}) == 1
    assert len({span for _, _, span, _ in parents}) == 3


async def test_the_timestamp_is_of_the_signing_and_not_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_800_000_000.9]
    monkeypatch.setattr(time, "time", lambda: clock[0])

    async def slow(_host: str, _port: int) -> list[str]:
        clock[0] += 4.0
        return ["127.0.0.1"]

    async with Receiver() as receiver:
        await send(loopback(slow), request(f"http://hooks.test:{receiver.port}/"))  # type: ignore[arg-type]
        assert receiver.requests[0].header("webhook-timestamp") == "1800000004"


async def test_during_a_rotation_both_secrets_sign_newest_first() -> None:
    newer = b"n" * 32
    async with Receiver() as receiver:
        await send(loopback(), request(receiver.url, secrets=(newer, SECRET)))
        (got,) = receiver.requests
    assert got.headers["webhook-signature"].count("v1,") == 2
    for secret in (newer, SECRET):
        assert standardwebhooks.Webhook(new_secret(secret)).verify(got.body, got.headers)


async def test_a_subscribers_own_headers_go_along() -> None:
    async with Receiver() as receiver:
        await send(loopback(), request(receiver.url, headers={"X-Api-Key": "k", "Authorization": "Bearer t"}))
        got = receiver.requests[0].headers
    assert (got["x-api-key"], got["authorization"]) == ("k", "Bearer t")


BAD_HEADERS: list[dict[str, Any]] = [
    {"X-A": "1\r\nX-B: 2"},
    {"X-A": "é"},
    {"X A": "1"},
    {"Host": "internal"},
    {"content-length": "0"},
    {"Transfer-Encoding": "chunked"},
    {"Webhook-Signature": "v1,x"},
    {"X": 1},
    {"X-A": "v" * 65536},
]


@pytest.mark.parametrize("headers", BAD_HEADERS, ids=range(len(BAD_HEADERS)))
async def test_a_bad_header_from_before_the_rules_ends_as_a_matter_of_configuration(headers: dict[str, Any]) -> None:
    async with Receiver() as receiver:
        sent = await send(loopback(), request(receiver.url, headers=headers))
        assert sent.outcome is Outcome.BLOCKED
        assert (sent.detail or "").startswith("configuration: ")
        assert receiver.connections == 0


async def test_nothing_is_sent_unsigned() -> None:
    async with Receiver() as receiver:
        sent = await send(loopback(), request(receiver.url, secrets=()))
        assert sent.outcome is Outcome.INTERNAL
        assert receiver.connections == 0


def test_what_shadow_mode_signs_is_what_would_have_been_sent() -> None:
    now = datetime.now(UTC).timestamp()
    headers = sign_headers(request("https://hooks.example/", run_id="r", headers={"x-a": "1"}), now)
    assert headers["webhook-timestamp"] == str(int(now))
    assert headers["x-a"] == "1"
    assert ORACLE.verify(BODY, headers)


def test_a_key_that_holds_no_event_id_still_makes_a_valid_trace() -> None:
    parent = sign_headers(request("https://hooks.example/", webhook_id="odd:acme"), 0)["traceparent"]
    assert [len(part) for part in parent.split("-")] == [2, 32, 16, 2]


STATUSES = {
    200: Outcome.DELIVERED,
    204: Outcome.DELIVERED,
    299: Outcome.DELIVERED,
    300: Outcome.REJECTED,
    304: Outcome.REJECTED,
    400: Outcome.REJECTED,
    404: Outcome.REJECTED,
    408: Outcome.SERVER_ERROR,
    410: Outcome.REJECTED,
    425: Outcome.SERVER_ERROR,
    429: Outcome.THROTTLED,
    500: Outcome.SERVER_ERROR,
    503: Outcome.SERVER_ERROR,
    599: Outcome.SERVER_ERROR,
    600: Outcome.SERVER_ERROR,
    999: Outcome.SERVER_ERROR,
}


@pytest.mark.parametrize(("status", "outcome"), STATUSES.items())
async def test_the_status_on_the_wire_decides(status: int, outcome: Outcome) -> None:
    body = b"" if status in (204, 304) else b"because"
    async with Receiver(answer(status, body=body)) as receiver:
        sent = await send(loopback(), request(receiver.url))
    assert (sent.outcome, sent.status, sent.excerpt) == (outcome, status, body.decode() or None)
    assert sent.disable is (status == 410)


async def test_retry_after_is_heard_capped_and_kept_beside_the_attempt() -> None:
    slow = answer(503, headers={"retry-after": "86400"})
    odd = answer(429, headers={"retry-after": "\xff"})
    async with Receiver(answer(429, headers={"retry-after": "7"}), slow, odd) as receiver:
        egress = loopback()
        first, second, third = [await send(egress, request(receiver.url)) for _ in range(3)]
    assert (first.outcome, first.retry_after, first.detail) == (Outcome.THROTTLED, 7.0, "retry-after: 7")
    assert (second.outcome, second.retry_after) == (Outcome.THROTTLED, 3600.0)
    assert "capped" in str(second.detail)
    assert (third.outcome, third.retry_after) == (Outcome.THROTTLED, None)


LOCATIONS = {
    "http://169.254.169.254/latest/SECRET?S3": "to http://169.254.169.254;",
    "//evil.example/SECRET": "to http://evil.example;",
    "https://user:SECRET@other.example:8443/x": "to https://other.example:8443;",
    "/v2/SECRET": "within its own origin",
    "?SECRET": "within its own origin",
    "file:///etc/SECRET": "not HTTP",
    "javascript:SECRET": "not HTTP",
    "http://[SECRET": "no URL",
    "http://" + "a" * 5000 + ".example/": "to http://aaaa",
    "": "no success",
    "\xff": "no success",
}


@pytest.mark.parametrize(("location", "told"), LOCATIONS.items(), ids=range(len(LOCATIONS)))
async def test_a_redirect_tells_where_it_leads_without_path_or_secret(location: str, told: str) -> None:
    async with Receiver(answer(302, headers={"location": location})) as receiver:
        sent = await send(loopback(), request(receiver.url))
    assert (sent.outcome, sent.status) == (Outcome.REJECTED, 302)
    assert told in str(sent.detail)
    assert "SECRET" not in str(sent.detail)
    assert len(str(sent.detail)) <= 200


async def test_a_redirect_without_location_says_so() -> None:
    async with Receiver(answer(300)) as receiver:
        sent = await send(loopback(), request(receiver.url))
    assert (sent.outcome, sent.detail) == (
        Outcome.REJECTED,
        "answered 300, which is no success; update the subscriber's url",
    )
