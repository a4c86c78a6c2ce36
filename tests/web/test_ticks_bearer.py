"""Ticks with a static token: off unless configured, and with a run id that the scheduler has to bring."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from service.domain.job import BearerConfig, JobConfig
from service.store.database import Database
from tests.web.conftest import JOB, SECRET, Api, called, instant, pointers, problem, tick

TOKEN, NEXT, OTHER = "a" * 40, "b" * 40, "c" * 40
BUS, PLAIN = "/v1/jobs/bus/ticks", "/v1/jobs/plain/ticks"
BY = {"authorization": f"Bearer {TOKEN}"}


@pytest_asyncio.fixture
async def bearing(database: Database) -> AsyncIterator[Api]:
    """`bus` takes its run id from a header or the body, `plain` from the body; the other job signs."""
    jobs = (
        JobConfig("bus", "tick", (b"tick-secret-of-the-bus",), bearer=BearerConfig((TOKEN.encode(),), "X-Event-Id")),
        JobConfig("plain", "tick", bearer=BearerConfig((NEXT.encode(), OTHER.encode()))),
        JobConfig(JOB, "tick", (SECRET,)),
    )
    async with called(database, {job.name: job for job in jobs}) as api:
        yield api


@pytest.fixture
def client(bearing: Api) -> httpx.AsyncClient:
    return bearing.client


async def test_a_header_names_the_run_and_its_repetitions_are_the_same_run(
    bearing: Api, client: httpx.AsyncClient
) -> None:
    headers = BY | {"x-event-id": "17793124-05d4-b198-2fde-7ededc63b103"}
    answers = await asyncio.gather(*(client.post(BUS, headers=headers, content=b'{"detail":{}}') for _ in range(20)))
    assert sorted(each.status_code for each in answers) == [200] * 19 + [202]
    run = answers[0].json()["run"]
    assert (run["runId"], run["source"]) == (headers["x-event-id"], "bearer")
    assert run["cutoff"] == run["claimedAt"]
    assert (await bearing.rows())["runs"] == 1


async def test_the_body_names_the_run_and_may_name_its_cutoff(client: httpx.AsyncClient) -> None:
    cutoff = instant(-600)
    first = await client.post(PLAIN, headers={"authorization": f"bearer {OTHER}"}, json={"runId": "r1"})
    assert (first.status_code, first.json()["run"]["runId"]) == (202, "r1")
    dated = {"runId": "r2", "cutoffIso": cutoff}
    second = await client.post(PLAIN, headers={"authorization": f"Bearer {NEXT}"}, json=dated)
    assert second.json()["run"]["cutoff"] == cutoff
    in_body = await client.post(BUS, headers=BY, json={"runId": "from the body"})
    assert in_body.json()["run"]["runId"] == "from the body"


async def test_a_body_may_add_the_cutoff_to_the_run_of_a_header_and_not_contradict_it(
    client: httpx.AsyncClient,
) -> None:
    headers, cutoff = BY | {"x-event-id": "r9"}, instant(-600)
    contradiction = await client.post(BUS, headers=headers, json={"runId": "another"})
    assert pointers(contradiction) == ["/runId"]
    assert pointers(await client.post(BUS, headers=headers, json={"cutoffIso": "yesterday"})) == ["/cutoffIso"]
    answer = await client.post(BUS, headers=headers, json={"cutoffIso": cutoff, "detail": {}})
    assert (answer.json()["run"]["runId"], answer.json()["run"]["cutoff"]) == ("r9", cutoff)


async def test_what_is_not_taken_is_logged_with_its_place_and_what_is_refused_with_its_reason(
    client: httpx.AsyncClient,
) -> None:
    with capture_logs() as told:
        await client.post(PLAIN, headers={"authorization": f"Bearer {NEXT}"}, content=b"{}")
        await client.post(f"/v1/jobs/{JOB}/ticks", headers={"authorization": ""}, json={"runId": "a", "cutoffIso": "b"})
        await client.post("/v1/jobs/typing-error/ticks", headers=BY, json={"runId": "a"})
    lines = [{name: line.get(name) for name in ("event", "job", "places", "why", "asked")} for line in told]
    nothing = dict.fromkeys(("job", "places", "why", "asked"))
    assert lines == [
        nothing | {"event": "tick.not_taken", "job": "plain", "places": ["/runId"]},
        nothing | {"event": "tick.refused", "job": JOB, "why": "no-credential"},
        nothing | {"event": "tick.refused", "why": "job", "asked": "typing-error"},
    ]


@pytest.mark.parametrize("body", [b"", b"fixed", b"{}", b'{"id":"r1"}'])
async def test_without_a_run_id_there_is_no_run(bearing: Api, client: httpx.AsyncClient, body: bytes) -> None:
    headers = BY | {"X-CloudScheduler-ScheduleTime": instant()}
    assert pointers(await client.post(BUS, headers=headers, content=body)) == ["/header/X-Event-Id"]
    plain = await client.post(PLAIN, headers={"authorization": f"Bearer {NEXT}"}, content=body)
    assert pointers(plain) == ["/runId"]
    assert not any((await bearing.rows()).values())


@pytest.mark.parametrize("run_id", [b"", b"a" * 201, b"\xff", b"a\x80", b"\xc2\x85"])
async def test_a_header_that_is_no_run_id_is_refused_at_its_place(client: httpx.AsyncClient, run_id: bytes) -> None:
    headers = {b"authorization": BY["authorization"].encode(), b"x-event-id": run_id}
    assert pointers(await client.post(BUS, headers=headers)) == ["/header/X-Event-Id"]


async def test_two_run_ids_are_none_and_a_run_id_in_utf_8_is_kept(client: httpx.AsyncClient) -> None:
    twice = [("authorization", BY["authorization"]), ("x-event-id", "a"), ("x-event-id", "a")]
    assert pointers(await client.post(BUS, headers=twice)) == ["/header/X-Event-Id"]
    headers = {b"authorization": BY["authorization"].encode(), b"x-event-id": "é".encode()}
    assert (await client.post(BUS, headers=headers)).json()["run"]["runId"] == "é"


async def test_a_token_ticks_its_own_job_only_and_no_job_that_has_none(bearing: Api, client: httpx.AsyncClient) -> None:
    for path in (PLAIN, f"/v1/jobs/{JOB}/ticks"):
        problem(await client.post(path, headers=BY, json={"runId": "r1"}), 401, "tick-refused")
    assert not any((await bearing.rows()).values())


async def test_a_job_with_a_token_still_takes_a_signature(client: httpx.AsyncClient) -> None:
    signed = tick(secret=b"tick-secret-of-the-bus")
    for headers in ({"authorization": ""}, {"authorization": "Bearer an-api-key"}):
        answer = await client.post(BUS, headers=headers, json=signed)
        assert answer.json()["run"]["source"] == "hmac"
