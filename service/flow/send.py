"""Sends one signed request, and tells what came of it; never raises for the far end."""

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from pyreqwest.exceptions import DetailedPyreqwestError, RequestTimeoutError
from pyreqwest.http import Url
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response

from service import __version__
from service.domain.excerpts import WINDOW_BYTES, excerpt, hidden
from service.domain.faults import fault
from service.domain.headers import header_faults
from service.domain.model import Answer, Outcome
from service.domain.outcomes import classify, retry_after_detail
from service.domain.signing import sign
from service.flow.egress import Blocked, Egress, Route
from service.flow.resolver import Unready, Unresolved

ANSWER_BYTES: Final = 64 * 1024
"""An answer is read no further; the connection is closed instead."""
_ORIGIN_CHARACTERS: Final = 100
_HEX: Final = re.compile(r"[0-9a-f]{32}")
_USER_AGENT: Final = f"Tocsin/{__version__}"


class Request(NamedTuple):
    """One attempt's request. `timeout_seconds` bounds all of it, from the look-up of the name to the answer's end."""

    url: str
    webhook_id: str
    """The delivery key `<eventId>:<subscriberId>`, the same for ever."""
    body: bytes
    secrets: tuple[bytes, ...]
    """Signing keys, newest first; each makes one signature."""
    generation: int
    attempt: int
    timeout_seconds: float
    run_id: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    """The subscriber's own."""
    traceparent: str | None = None
    """Of the attempt's span, where it is traced."""

    def __repr__(self) -> str:
        """Nothing of what is secret: no URL, header, key or body."""
        return f"Request({self.webhook_id!r}, generation={self.generation}, attempt={self.attempt})"


async def send(egress: Egress, request: Request) -> Answer:
    """Make one attempt, which ends within `timeout_seconds` whatever the receiver does.

    Cancelling it returns at once, but the transport goes on by itself until the answer's head or the end of that
    time: a request whose sending was cancelled may still be received. When it began and how
    long it took is for the caller to say, who knows the database's clock.
    """
    try:
        return await _attempt(egress, request)
    except Blocked as blocked:
        return Answer(Outcome.BLOCKED, detail=str(blocked))
    except Unresolved as unresolved:
        return Answer(Outcome.UNREACHABLE, detail=str(unresolved))
    except Unready as unready:
        return Answer(Outcome.INTERNAL, detail=str(unready))


def sign_headers(request: Request, now: float) -> dict[str, str]:
    """The headers of an attempt that is signed at `now`, in seconds since 1970, the subscriber's own among them.

    The trace is the event's, so that all attempts at it hang together; the span is this attempt's own (W3C Trace
    Context, 3.2). Where nothing is traced they are made up, for a receiver that does.
    """
    timestamp = int(now)
    key = request.webhook_id
    headers = {
        **request.headers,
        "content-type": "application/json",
        "user-agent": _USER_AGENT,
        "webhook-id": key,
        "idempotency-key": key,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(request.secrets, key, timestamp, request.body),
        "tocsin-generation": str(request.generation),
        "tocsin-attempt": str(request.attempt),
        "traceparent": request.traceparent or f"00-{_trace_id(key)}-{os.urandom(8).hex()}-01",
    }
    if request.run_id is not None:
        headers["tocsin-run"] = request.run_id
    return headers


def _trace_id(webhook_id: str) -> str:
    """The event's id without its hyphens, which is just as long as a trace id; for any other key, a hash of it."""
    bare = webhook_id.partition(":")[0].replace("-", "")
    return bare if _HEX.fullmatch(bare) else hashlib.sha256(webhook_id.encode()).hexdigest()[:32]


async def _attempt(egress: Egress, request: Request) -> Answer:
    if not request.secrets:
        return Answer(Outcome.INTERNAL, detail="configuration: there is no secret to sign with")
    if request.headers and header_faults(request.headers):
        return Answer(Outcome.BLOCKED, detail="configuration: a header of this subscriber cannot be sent")
    seconds = request.timeout_seconds
    route = egress.ready(request.url, seconds)
    if route is None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                route = await egress.route(request.url, seconds)
        except TimeoutError:
            return Answer(Outcome.UNREACHABLE, detail="dns: no answer within the attempt's time")
        seconds = max(seconds - (time.monotonic() - began), 0.001)
    try:
        prepared = _prepared(route, request, seconds)
    except ValueError:
        return Answer(Outcome.BLOCKED, detail="configuration: this request cannot be written as HTTP")
    return await _exchange(egress, request, route, prepared)


def _prepared(route: Route, request: Request, seconds: float) -> StreamRequest:
    return (
        route.client.post(route.url)
        .headers(sign_headers(request, time.time()))
        .body_bytes(request.body)
        # The transport's own timer also covers the answer's body, and costs a third of what the event loop's does.
        .timeout(timedelta(seconds=seconds))
        # The head is handed over as soon as it is there: a body that drips must not hide its status.
        .streamed_read_buffer_limit(1)
        .build_streamed()
    )


async def _exchange(egress: Egress, request: Request, route: Route, prepared: StreamRequest) -> Answer:
    status = None
    try:
        async with prepared as response:
            status = response.status
            read = await response.body_reader.read(ANSWER_BYTES)
            body = b"" if read is None else bytes(memoryview(read)[:WINDOW_BYTES])
            return _told(response, _excerpt(body, request, route.url), route.url)
    except DetailedPyreqwestError as error:
        causes = [cause["message"] for cause in error.details["causes"] or []]
        outcome, detail = fault(causes, timed_out=isinstance(error, RequestTimeoutError))
        if outcome is Outcome.UNREACHABLE:
            egress.unreached(request.url, route.address)
        return Answer(outcome, status, detail if status is None else f"{detail} (it began with status {status})")


def _excerpt(body: bytes, request: Request, url: Url) -> str | None:
    """What is kept of an answer, in which a receiver may have repeated the credentials that it was sent."""
    if not body:
        return None
    return excerpt(body, hidden(tuple(request.headers.values()), (request.url, str(url))))


def _told(response: Response, excerpt: str | None, url: Url) -> Answer:
    """What a complete answer says; the rare parts only where the status asks for them."""
    status = response.status
    if 200 <= status < 300:  # noqa: PLR2004
        return Answer(Outcome.DELIVERED, status, excerpt=excerpt)
    asked = _values(response, "retry-after")
    outcome, retry_after, disable = classify(status, asked, datetime.now(UTC))
    detail = retry_after_detail(asked, retry_after)
    if 300 <= status < 400:  # noqa: PLR2004
        detail = _redirected(status, _values(response, "location"), url)
    elif status < 200:  # noqa: PLR2004
        detail = "the connection was switched to another protocol instead of an answer"
    return Answer(outcome, status, detail, retry_after, excerpt, disable=disable)


def _values(response: Response, name: str) -> list[str]:
    """Every value of a header; one that is not ASCII counts as junk, and so as empty."""
    try:
        return response.get_header_all(name)
    except ValueError:
        return [""]


def _redirected(status: int, locations: list[str], url: Url) -> str:
    """Where a redirect that was not followed would lead: an origin at most, because paths and queries may be secret."""
    advice = "it is not followed; update the subscriber's url"
    if not locations or not locations[0]:
        return f"answered {status}, which is no success; update the subscriber's url"
    try:
        to = url.join(locations[0])
    except ValueError:
        return f"redirects ({status}) to something that is no URL; {advice}"
    if to.scheme not in ("http", "https"):
        return f"redirects ({status}) to something that is not HTTP; {advice}"
    if to.origin_ascii == url.origin_ascii:
        return f"redirects ({status}) within its own origin; {advice}"
    return f"redirects ({status}) to {to.origin_ascii[:_ORIGIN_CHARACTERS]}; {advice}"
