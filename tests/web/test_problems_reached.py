"""Every problem of the table is what some request is really answered with: one request for each, and none left out."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from service.domain import errors
from service.domain.errors import TocsinError
from service.domain.model import Scope
from service.web import bodies, problems
from service.web.connections import HEAD_BYTES
from service.web.problems import TABLE
from service.web.state import state_of
from tests.web.conftest import JOB, Api, instant, tick
from tests.web.test_connections import LIVEZ, Address, everything, post

EVENT = {"type": "a.b", "subject": "s", "version": 1, "data": {}}
TICKS = f"/v1/jobs/{JOB}/ticks"


class Reach:
    """What a request needs to be answered with its problem."""

    def __init__(self, api: Api, address: Address, patched: pytest.MonkeyPatch) -> None:
        self.api = api
        self.address = address
        self.patched = patched

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, str]:
        """Status and type of what comes back."""
        answer: httpx.Response = await self.api.client.request(method, path, **more)
        return answer.status_code, str(answer.json()["type"])

    async def on_the_wire(self, raw: bytes) -> tuple[int, str]:
        """The same of bytes."""
        head, _, body = (await everything(self.address, raw)).partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), str(json.loads(body)["type"])

    async def raising(self, error: Exception) -> tuple[int, str]:
        """The same where the house raises this."""

        async def fails(*_: object, **__: object) -> None:
            raise error

        self.patched.setattr("service.web.runs.views.runs", fails)
        return await self.call("GET", "/v1/runs")

    async def dead(self) -> str:
        """The path of a delivery that was refused for good."""
        await self.api.scene.subscriber("acme", "http://127.0.0.1:9/", max_attempts=1)
        await self.api.scene.event()
        await self.api.scene.dispatcher().once()
        [view] = await self.api.scene.views("acme")
        return f"/v1/deliveries/{view.id}"


Asked = Awaitable[tuple[int, str]]


async def _forbidden(reach: Reach) -> tuple[int, str]:
    key = await reach.api.key("reader", Scope.READ)
    return await reach.call("POST", "/v1/events", json=EVENT, headers=key)


async def _too_slow(reach: Reach) -> tuple[int, str]:
    reach.patched.setattr(bodies, "DEADLINE_SECONDS", 0.05)
    return await reach.on_the_wire(post("/v1/events", b"", b"Content-Length: 9\r\n", length=False))


async def _conflict(reach: Reach) -> tuple[int, str]:
    return await reach.call("POST", f"{await reach.dead()}/cancel", json={"reason": "r"})


async def _run_conflict(reach: Reach) -> tuple[int, str]:
    await reach.api.client.post(TICKS, json=tick("r1", instant()))
    return await reach.call("POST", TICKS, json=tick("r1", instant(-60)))


async def _event_conflict(reach: Reach) -> tuple[int, str]:
    await reach.api.client.post("/v1/events", json=EVENT)
    return await reach.call("POST", "/v1/events", json=EVENT | {"data": 1})


async def _in_flight(reach: Reach) -> tuple[int, str]:
    headers = {"idempotency-key": "k"}
    await reach.api.client.post("/v1/events", json=EVENT, headers=headers)
    await reach.api.scene.execute("UPDATE tocsin.idempotency_keys SET status = NULL, sealed_answer = NULL")
    return await reach.call("POST", "/v1/events", json=EVENT, headers=headers)


async def _mismatch(reach: Reach) -> tuple[int, str]:
    headers = {"idempotency-key": "k"}
    await reach.api.client.post("/v1/events", json=EVENT, headers=headers)
    return await reach.call("POST", "/v1/events", json=EVENT | {"version": 2}, headers=headers)


async def _purged(reach: Reach) -> tuple[int, str]:
    path = await reach.dead()
    await reach.api.scene.execute("UPDATE tocsin.events SET body = NULL, purged_at = now()")
    return await reach.call("POST", f"{path}/replay", json={"reason": "r"})


async def _contended(reach: Reach) -> tuple[int, str]:
    impatient = reach.api.house.db.bounded(seconds=5, lock_seconds=0.1)
    state_of(reach.api.app).runtime = replace(reach.api.house, db=impatient)
    async with reach.api.scene.db.begin() as tx:
        await tx.conn.exec_driver_sql("LOCK TABLE tocsin.events IN ACCESS EXCLUSIVE MODE")
        return await reach.call("POST", "/v1/events", json=EVENT)


async def _unavailable(reach: Reach) -> tuple[int, str]:
    state_of(reach.api.app).draining = True
    return await reach.call("GET", "/readyz")


REACHED: Mapping[type[TocsinError], Callable[[Reach], Asked]] = {
    # Only its heirs are raised by name; it is what a new one is told as, until it has a place of its own.
    errors.Refused: lambda reach: reach.raising(errors.Refused("no")),
    problems.Malformed: lambda reach: reach.on_the_wire(b"GET /livez HTTP/1.1\r\n\r\n"),
    problems.HeadTooLarge: lambda reach: reach.on_the_wire(LIVEZ[:-2] + b"X: " + b"a" * HEAD_BYTES),
    errors.TickRefused: lambda reach: reach.call("POST", TICKS, json=tick(secret=b"another")),
    errors.Unauthenticated: lambda reach: reach.call("GET", "/v1/runs", headers={"authorization": ""}),
    errors.Forbidden: _forbidden,
    errors.NotFound: lambda reach: reach.call("GET", "/v1/subscribers/nobody"),
    problems.MethodNotAllowed: lambda reach: reach.call("DELETE", "/v1/runs"),
    problems.TooSlow: _too_slow,
    errors.Conflict: _conflict,
    errors.RunConflict: _run_conflict,
    errors.EventConflict: _event_conflict,
    errors.IdempotencyInFlight: _in_flight,
    errors.PayloadPurged: _purged,
    errors.NotJson: lambda reach: reach.call("POST", "/v1/events", content=b"{"),
    errors.TooLarge: lambda reach: reach.call("POST", TICKS, content=b" " * 17_000),
    errors.UnsupportedEncoding: lambda reach: reach.call(
        "POST", "/v1/events", json=EVENT, headers={"content-encoding": "gzip"}
    ),
    errors.Invalid: lambda reach: reach.call("POST", "/v1/events", json={}),
    errors.CutoffOutOfRange: lambda reach: reach.call("POST", TICKS, json=tick("r1", instant(3600))),
    errors.IdempotencyMismatch: _mismatch,
    errors.Unavailable: _unavailable,
    errors.Contended: _contended,
    problems.Internal: lambda reach: reach.raising(RuntimeError("of our own")),
}


def test_no_problem_is_left_out() -> None:
    assert set(REACHED) == set(TABLE)


@pytest.mark.parametrize("kind", REACHED, ids=lambda kind: TABLE[kind].slug)
async def test_a_request_reaches_it(
    api: Api, address: Address, monkeypatch: pytest.MonkeyPatch, kind: type[TocsinError]
) -> None:
    expected = TABLE[kind]
    told = await REACHED[kind](Reach(api, address, monkeypatch))
    assert told == (expected.status, problems.type_uri(expected))
