"""Ticks with identity tokens, minted as Google's and as GitHub's: which run they get, and what never gets one."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from service.domain.job import JobConfig
from service.domain.timestamps import format_rfc3339
from service.store.database import Database
from tests.issuers import AUDIENCE, Clock, Issuer
from tests.polling import eventually
from tests.receivers import answer
from tests.scenes import LOOPBACK
from tests.web.conftest import BOOTSTRAP_KEY, JOB, SECRET, Api, called, instant, pointers, problem, served, tick

PATH = f"/v1/jobs/{JOB}/ticks"
SLOT = "X-CloudScheduler-ScheduleTime"
BY_HAND = re.compile(re.escape(JOB) + r"@manual-\d{4}-\d\d-\d\dT\d\d:\d\dZ")


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer() as issuer:
        yield issuer


def jobs_of(issuer: Issuer) -> dict[str, JobConfig]:
    """One job that Cloud Scheduler ticks, and whoever signs; one that a workflow ticks."""
    google = JobConfig(JOB, "tick", (SECRET,), "shipment.expired", oidc=issuer.wants_google())
    github = JobConfig("ci", "tick", (), "ci.due", oidc=issuer.wants_github(source="octo"))
    signed = JobConfig("reports", "tick", (b"tick-secret-of-the-reports",), "report.due")
    return {job.name: job for job in (google, github, signed)}


@pytest_asyncio.fixture
async def open_door(database: Database, issuer: Issuer) -> AsyncIterator[Api]:
    """The API with these jobs, which may call the issuer."""
    async with called(database, jobs_of(issuer), LOOPBACK) as api:
        yield api


@pytest_asyncio.fixture
async def door(open_door: Api) -> AsyncIterator[httpx.AsyncClient]:
    """A client as plain as a scheduler, on a real socket; it follows redirects, of which there are none."""
    async with (
        served(open_door) as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", follow_redirects=True) as client,
    ):
        yield client


async def knock(
    client: httpx.AsyncClient, token: str | None, slot: str | None = None, *, path: str = PATH, **sent: Any
) -> httpx.Response:
    headers = dict(sent.pop("headers", {}))
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    if slot is not None:
        headers[SLOT] = slot
    return await client.post(path, headers=headers, **sent)


async def test_a_slot_of_cloud_scheduler_s_is_one_run_with_the_slot_as_cutoff_however_often_it_is_tried(
    door: httpx.AsyncClient, open_door: Api, issuer: Issuer
) -> None:
    slot = instant(-2)
    first = await knock(door, issuer.google(), slot)
    assert first.status_code == 202
    run = first.json()["run"]
    assert (run["runId"], run["cutoff"], run["source"]) == (f"{JOB}@{slot}", slot, "oidc")
    for same in (slot, slot.replace("Z", "+00:00"), slot.replace("Z", ".000Z"), slot.lower()):
        again = await knock(door, issuer.google(), same, content=b"whatever { it is")
        assert (again.status_code, again.json()["run"]["id"]) == (200, run["id"])
    assert (await open_door.rows())["runs"] == 1
    job = open_door.house.jobs[JOB]
    assert await open_door.scene.discovery(job).once()
    done = (await open_door.client.get(first.headers["location"])).json()
    assert (done["state"], done["events"]) == ("completed", 1)


async def test_a_slot_in_another_offset_is_told_in_utc(door: httpx.AsyncClient, issuer: Issuer) -> None:
    slot = datetime.fromisoformat(instant(-60)).replace(microsecond=123_456)
    shifted = (slot + timedelta(hours=5, minutes=30)).strftime("%Y-%m-%dT%H:%M:%S.%f+05:30")
    run = (await knock(door, issuer.google(), shifted)).json()["run"]
    assert run["runId"] == f"{JOB}@{format_rfc3339(slot)}"


async def test_twenty_tries_of_one_slot_at_once_are_one_run(
    door: httpx.AsyncClient, open_door: Api, issuer: Issuer
) -> None:
    slot, token = instant(), issuer.google()
    answers = await asyncio.gather(*(knock(door, token, slot) for _ in range(20)))
    assert sorted(each.status_code for each in answers) == [200] * 19 + [202]
    assert len({each.json()["run"]["id"] for each in answers}) == 1
    assert (await open_door.rows())["runs"] == 1
    assert issuer.fetches == 1


@pytest.mark.parametrize("path", [PATH, PATH + "/"])
@pytest.mark.parametrize("content_type", [None, "application/octet-stream", "application/json"])
async def test_any_content_type_will_do_for_a_token_and_for_a_signature(
    door: httpx.AsyncClient, issuer: Issuer, content_type: str | None, path: str
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    by_token = await knock(door, issuer.google(), instant(), path=path, headers=headers, content=b"fixed")
    signed = httpx.Request("POST", path, json=tick("signed")).content
    by_secret = await knock(door, None, path=path, headers=headers, content=signed)
    assert (by_token.status_code, by_secret.status_code) == (202, 202)
    assert not by_token.history
    assert not by_secret.history
    assert ("content-type" in by_token.request.headers) == (content_type is not None)


async def test_a_run_by_hand_with_the_next_slot_s_time_and_then_the_slot_itself_are_two_runs(
    door: httpx.AsyncClient, open_door: Api, issuer: Issuer
) -> None:
    slot = instant(8)
    forced = (await knock(door, issuer.google(), slot)).json()["run"]
    assert BY_HAND.fullmatch(forced["runId"])
    assert forced["cutoff"] < slot

    async def come() -> dict[str, Any] | None:
        run: dict[str, Any] = (await knock(door, issuer.google(), slot)).json()["run"]
        return None if BY_HAND.fullmatch(run["runId"]) else run

    real = await eventually(come)
    assert real is not None
    assert (real["runId"], real["cutoff"]) == (f"{JOB}@{slot}", slot)
    assert real["id"] != forced["id"]
    again = await knock(door, issuer.google(), slot)
    assert (again.status_code, again.json()["run"]["id"]) == (200, real["id"])
    assert (await open_door.rows())["runs"] >= 2


async def test_a_run_by_hand_without_a_time_and_then_a_slot_are_two_runs(
    door: httpx.AsyncClient, issuer: Issuer
) -> None:
    forced = await knock(door, issuer.google())
    real = await knock(door, issuer.google(), instant())
    assert (forced.status_code, real.status_code) == (202, 202)
    assert BY_HAND.fullmatch(forced.json()["run"]["runId"])
    assert forced.json()["run"]["id"] != real.json()["run"]["id"]


@pytest.mark.parametrize("body", [b"", b"fixed", b"\xff\xfe\x00", b"[1]", b'{"a": 1}', b'{"a":1,"a":2}', b"[" * 9000])
async def test_a_body_that_names_no_run_is_a_run_by_hand(door: httpx.AsyncClient, issuer: Issuer, body: bytes) -> None:
    answered = await knock(door, issuer.google(), content=body)
    assert answered.status_code == 202
    assert BY_HAND.fullmatch(answered.json()["run"]["runId"])


async def test_a_workflow_names_its_run_in_the_body_and_its_next_attempt_gets_the_same(
    door: httpx.AsyncClient, open_door: Api, issuer: Issuer
) -> None:
    path, body = "/v1/jobs/ci/ticks", {"runId": "octo-9876543210"}
    first = await knock(door, issuer.github(), path=path, json=body)
    again = await knock(door, issuer.github(run_attempt="2"), path=path, json=body | {"signature": "none"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["run"] == first.json()["run"]
    dated = {"runId": "octo-2", "cutoffIso": instant(-60)}
    assert (await knock(door, issuer.github(), path=path, json=dated)).json()["run"]["cutoff"] == dated["cutoffIso"]
    problem(
        await knock(door, issuer.github(), path=path, json=dated | {"cutoffIso": instant(-90)}), 409, "run-conflict"
    )
    assert (await open_door.rows())["runs"] == 2


FAULTY: dict[str, tuple[bytes, str]] = {
    "no run id": (b'{"cutoffIso":"2026-11-30T02:00:00Z"}', "/runId"),
    "NUL": (b'{"runId":"a\\u0000"}', "/runId"),
    "too long": (b'{"runId":"%s"}' % (b"a" * 201), "/runId"),
    "a number": (b'{"runId":7}', "/runId"),
    "twice": (b'{"runId":"a","runId":"b"}', "/runId"),
    "no offset": (b'{"runId":"a","cutoffIso":"2026-11-30T02:00:00"}', "/cutoffIso"),
    "another field": (b'{"runId":"a","cutoff":"2026-11-30T02:00:00Z"}', "/cutoff"),
    "in a list": (b'[{"runId":"a"}]', ""),
}


@pytest.mark.parametrize(("body", "place"), FAULTY.values(), ids=FAULTY)
async def test_a_body_that_means_a_run_and_is_faulty_is_no_run_by_hand(
    door: httpx.AsyncClient, open_door: Api, issuer: Issuer, body: bytes, place: str
) -> None:
    assert pointers(await knock(door, issuer.google(), content=body)) == [place]
    assert not any((await open_door.rows()).values())


@pytest.mark.parametrize("slot", ["", "tomorrow", "2026-11-30T02:00:00", "2026-11-30T24:00:00Z", "1796004000"])
async def test_a_slot_that_is_no_instant_is_refused_at_its_header(
    door: httpx.AsyncClient, issuer: Issuer, slot: str
) -> None:
    assert pointers(await knock(door, issuer.google(), slot)) == [f"/header/{SLOT}"]


async def test_two_slots_and_a_slot_of_long_ago_are_refused_at_their_header(
    door: httpx.AsyncClient, issuer: Issuer
) -> None:
    twice = [("authorization", f"Bearer {issuer.google()}"), (SLOT, instant()), (SLOT, instant(-60))]
    assert pointers(await door.post(PATH, headers=twice)) == [f"/header/{SLOT}"]
    old = problem(await knock(door, issuer.google(), instant(-8 * 86_400)), 422, "cutoff-out-of-range")
    assert [each["pointer"] for each in old["errors"]] == [f"/header/{SLOT}"]


async def test_whoever_signs_needs_no_token_and_an_api_key_beside_the_signature_does_no_harm(
    door: httpx.AsyncClient, issuer: Issuer
) -> None:
    for at, token in enumerate((None, BOOTSTRAP_KEY, issuer.google(aud="another"))):
        answered = await knock(door, token, json=tick(f"r{at}"))
        assert (answered.status_code, answered.json()["run"]["source"]) == (202, "hmac")


async def test_keys_that_rotate_and_an_issuer_that_goes_away_do_not_stop_the_ticks(
    door: httpx.AsyncClient, open_door: Api, issuer: Issuer
) -> None:
    clock = Clock()
    open_door.house.tokens._issuers._elapsed = clock
    assert (await knock(door, issuer.google(), instant(-3))).status_code == 202
    clock.turn(60)
    issuer.rotate()
    assert (await knock(door, issuer.google(), instant(-2))).status_code == 202
    clock.turn(86_400)
    issuer.away = answer(503)
    assert (await knock(door, issuer.google(), instant(-1))).status_code == 202
    assert issuer.fetches == 2


async def test_while_no_key_is_known_the_scheduler_is_asked_to_try_again(
    door: httpx.AsyncClient, open_door: Api, issuer: Issuer
) -> None:
    issuer.away = answer(503)
    away = await knock(door, issuer.google(), instant())
    problem(away, 503, "unavailable")
    assert int(away.headers["retry-after"]) > 0
    problem(await knock(door, issuer.google(aud="another"), instant()), 401, "tick-refused")
    assert not any((await open_door.rows()).values())


@pytest.mark.parametrize(
    ("change", "why"),
    [({"aud": "another"}, "audience"), ({"iat": 1_700_000_000, "exp": 1_700_003_600}, "expired")],
)
async def test_the_log_alone_says_why_and_nothing_of_the_token(
    open_door: Api, issuer: Issuer, change: dict[str, Any], why: str
) -> None:
    token = issuer.google(**change)
    with capture_logs() as told:
        problem(await knock(open_door.client, token), 401, "tick-refused")
    (line,) = [each for each in told if each["event"] == "tick.refused"]
    assert (line["job"], line["why"]) == (JOB, why)
    assert not [part for part in token.split(".") if part in str(told)]


async def test_a_token_for_one_job_is_none_for_another(door: httpx.AsyncClient, issuer: Issuer) -> None:
    problem(await knock(door, issuer.github(), instant()), 401, "tick-refused")
    problem(await knock(door, issuer.google(), path="/v1/jobs/ci/ticks"), 401, "tick-refused")
    problem(await knock(door, issuer.google(), path="/v1/jobs/reports/ticks"), 401, "tick-refused")
    assert (await knock(door, issuer.google(aud=[AUDIENCE, "x"]), instant())).status_code == 202
