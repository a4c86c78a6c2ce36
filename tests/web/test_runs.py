"""Runs and jobs over HTTP: what they show as their deliveries go on, and what an operator may do to them."""

from typing import Any

import pytest

from service.domain.model import RunId
from tests.scenes import Scene
from tests.web.conftest import JOB, Api, instant, pointers, problem, tick


async def ticked(api: Api, run_id: str = "r1") -> Any:
    """The run of a fresh tick."""
    return (await api.client.post(f"/v1/jobs/{JOB}/ticks", json=tick(run_id))).json()["run"]


async def delivering(api: Api, subscribers: int) -> str:
    """The id of a completed run with one event and so many pending deliveries."""
    for number in range(subscribers):
        await api.scene.subscriber(f"s{number}", f"http://127.0.0.1:1/{number}")
    run = (await ticked(api))["id"]
    await api.scene.event()
    await api.scene.execute("UPDATE tocsin.events SET run_id = :run", run=run)
    await api.scene.execute("UPDATE tocsin.deliveries SET run_id = :run", run=run)
    await api.scene.execute(
        "UPDATE tocsin.runs SET state = 'completed', started_at = now(), completed_at = now(), events = 1, "
        "settled_at = now()"
    )
    return str(run)


async def becomes(scene: Scene, state: str, count: int) -> None:
    """Let so many pending deliveries come to an end."""
    await scene.execute(
        "UPDATE tocsin.deliveries SET state = :state, finished_at = now() WHERE row IN "
        "(SELECT row FROM tocsin.deliveries WHERE state = 'pending' AND lease_owner IS NULL LIMIT :count)",
        state=state,
        count=count,
    )


async def test_a_run_says_exactly_how_its_deliveries_stand(api: Api) -> None:
    run = await delivering(api, 8)
    await becomes(api.scene, "delivered", 3)
    await becomes(api.scene, "rejected", 1)
    await becomes(api.scene, "exhausted", 1)
    await becomes(api.scene, "ambiguous", 1)
    await api.scene.execute(
        "UPDATE tocsin.deliveries SET lease_owner = 'w', lease_expires_at = now() WHERE row = "
        "(SELECT min(row) FROM tocsin.deliveries WHERE state = 'pending')"
    )
    await api.scene.execute("UPDATE tocsin.deliveries SET created_at = now() - interval '90 seconds'")
    told = (await api.client.get(f"/v1/runs/{run}")).json()
    assert told["deliveries"] == {
        "total": 8,
        "pending": 1,
        "leased": 1,
        "delivered": 3,
        "exhausted": 1,
        "rejected": 1,
        "ambiguous": 1,
        "cancelled": 0,
    }
    assert (told["state"], told["settled"], told["settledAt"]) == ("completed", False, None)
    assert told["oldestPendingAgeSeconds"] >= 90
    assert (await api.client.get("/v1/runs")).json()["items"] == [told | {"oldestPendingAgeSeconds": _any()}]


class _any:  # noqa: N801 - stands for a value
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


async def test_a_run_is_settled_when_every_delivery_is_terminal(api: Api) -> None:
    run = await delivering(api, 2)
    await becomes(api.scene, "delivered", 2)
    told = (await api.client.get(f"/v1/runs/{run}")).json()
    assert (told["settled"], told["oldestPendingAgeSeconds"]) == (True, None)
    assert told["settledAt"] is not None


async def test_a_run_without_events_is_settled_by_being_completed(api: Api) -> None:
    run = await ticked(api)
    assert (run["settled"], run["deliveries"]["total"]) == (False, 0)
    await api.scene.execute("UPDATE tocsin.runs SET state = 'completed', completed_at = now(), settled_at = now()")
    assert (await api.client.get(f"/v1/runs/{run['id']}")).json()["settled"] is True


async def test_a_run_started_by_hand_is_the_one_that_a_tick_would_get(api: Api) -> None:
    cutoff = instant(-3600)
    body = {"runId": "by-hand", "cutoff": cutoff, "reason": "the scheduler was down"}
    first = await api.client.post(f"/v1/jobs/{JOB}/runs", json=body)
    assert (first.status_code, first.json()["run"]["source"]) == (202, "operator")
    assert first.headers["location"] == f"/v1/runs/{first.json()['run']['id']}"
    second = await api.client.post(f"/v1/jobs/{JOB}/runs", json=body)
    assert (second.status_code, second.json()["duplicate"]) == (200, True)
    third = await api.client.post(f"/v1/jobs/{JOB}/ticks", json=tick("by-hand", cutoff))
    assert third.json()["run"]["id"] == first.json()["run"]["id"]
    other = await api.client.post(f"/v1/jobs/{JOB}/runs", json=body | {"cutoff": instant()})
    assert cutoff in problem(other, 409, "run-conflict")["detail"]
    [line] = await api.scene.execute("SELECT actor, action, reason FROM tocsin.audit")
    assert tuple(line) == ("bootstrap", "run.started", "the scheduler was down")


async def test_the_joiners_of_persian_and_of_emoji_are_part_of_what_people_write(api: Api) -> None:
    body = {"runId": "می\u200cروم ❤\ufe0f", "cutoff": instant(), "reason": "👩\u200d🚒 \u200fשלום\u200e"}
    started = await api.client.post(f"/v1/jobs/{JOB}/runs", json=body)
    assert started.json()["run"]["runId"] == body["runId"]
    [line] = await api.scene.execute("SELECT reason FROM tocsin.audit")
    assert line.reason == body["reason"]


STARTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing": ({}, ["/runId", "/cutoff"]),
    "a tick": (tick(), ["/cutoff", "/cutoffIso", "/signature"]),
    "an empty run id": ({"runId": "", "cutoff": instant()}, ["/runId"]),
    "a control character": ({"runId": "ECHO\n", "cutoff": instant()}, ["/runId"]),
    "no offset": ({"runId": "r", "cutoff": "2026-11-30T02:00:00"}, ["/cutoff"]),
    "an empty reason": ({"runId": "r", "cutoff": instant(), "reason": ""}, ["/reason"]),
    "a reason of spaces": ({"runId": "r", "cutoff": instant(), "reason": "   "}, ["/reason"]),
    "a reason that is too long": ({"runId": "r", "cutoff": instant(), "reason": "x" * 501}, ["/reason"]),
    "a reason with a newline": ({"runId": "r", "cutoff": instant(), "reason": "ECHO\nb"}, ["/reason"]),
    "a reason that nobody sees": (
        {"runId": "r", "cutoff": instant(), "reason": "\u200b\u3164\u00ad\u0301"},
        ["/reason"],
    ),
    "a reason that turns the text around": ({"runId": "r", "cutoff": instant(), "reason": "a\u202eb"}, ["/reason"]),
    "a reason with another newline": ({"runId": "r", "cutoff": instant(), "reason": "a\u2028b"}, ["/reason"]),
    "a reason that is a number": ({"runId": "r", "cutoff": instant(), "reason": 1}, ["/reason"]),
}


@pytest.mark.parametrize(("body", "places"), STARTS.values(), ids=STARTS)
async def test_a_start_that_cannot_be_meant_is_refused(refusing: Api, body: dict[str, Any], places: list[str]) -> None:
    assert pointers(await refusing.client.post(f"/v1/jobs/{JOB}/runs", json=body)) == places


async def test_a_start_out_of_range_points_at_its_own_field(refusing: Api) -> None:
    body = {"runId": "r", "cutoff": instant(3600)}
    answer = await refusing.client.post(f"/v1/jobs/{JOB}/runs", json=body)
    assert problem(answer, 422, "cutoff-out-of-range")["errors"][0]["pointer"] == "/cutoff"


@pytest.mark.parametrize("action", ["runs", "pause", "resume"])
@pytest.mark.parametrize("job", ["nope", "a%00b", "%FF", "x" * 3000])
async def test_a_job_that_is_not_declared_is_not_there(refusing: Api, job: str, action: str) -> None:
    body = {"runId": "r", "cutoff": instant()} if action == "runs" else {}
    problem(await refusing.client.post(f"/v1/jobs/{job}/{action}", json=body), 404, "not-found")


async def test_a_failed_run_says_why_and_goes_on_when_retried(api: Api) -> None:
    run = await ticked(api)
    path = f"/v1/runs/{run['id']}"
    problem(await api.client.post(f"{path}/retry"), 409, "conflict")
    await api.scene.execute("UPDATE tocsin.runs SET state = 'failed', error = 'no column subject'")
    assert (await api.client.get(path)).json()["error"] == "no column subject"
    retried = await api.client.post(f"{path}/retry", json={"reason": "mended"})
    assert (retried.status_code, retried.json()["state"]) == (200, "claimed")
    assert (await api.scene.run(RunId(run["id"]))).state == "claimed"


@pytest.mark.parametrize("run", ["019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11", "r1", "a%00b", "%ED%A0%80"])
async def test_a_run_that_is_not_there_cannot_be_retried(refusing: Api, run: str) -> None:
    problem(await refusing.client.post(f"/v1/runs/{run}/retry"), 404, "not-found")


async def test_a_job_shows_its_last_tick_and_run(api: Api) -> None:
    fresh = (await api.client.get(f"/v1/jobs/{JOB}")).json()
    assert fresh == {
        "job": JOB,
        "source": "tick",
        "eventType": "shipment.expired",
        "paused": False,
        "pausedReason": None,
        "lastTickAt": None,
        "frozenSince": None,
        "lastRun": None,
    }
    await ticked(api, "r1")
    last = await ticked(api, "r2")
    told = (await api.client.get(f"/v1/jobs/{JOB}")).json()
    assert told["lastRun"]["id"] == last["id"]
    assert told["lastTickAt"] is not None
    listed = (await api.client.get("/v1/jobs")).json()["items"]
    assert [job["lastRun"] and job["lastRun"]["runId"] for job in listed] == [None, "r2"]


async def test_pausing_twice_keeps_the_first_reason(api: Api) -> None:
    first = await api.client.post(f"/v1/jobs/{JOB}/pause", json={"reason": "  first  "})
    second = await api.client.post(f"/v1/jobs/{JOB}/pause", json={"reason": "second"})
    assert first.json()["pausedReason"] == second.json()["pausedReason"] == "first"
    assert (await api.client.post(f"/v1/jobs/{JOB}/resume")).json()["paused"] is False


async def test_a_run_shows_how_far_a_source_that_does_work_of_its_own_has_come(api: Api) -> None:
    run = await ticked(api)
    assert run["progress"] is None
    await api.scene.execute("""UPDATE tocsin.runs SET progress = '{"phase": "payloads", "dryRun": true}'""")
    read = await api.client.get(f"/v1/runs/{run['id']}")
    assert read.json()["progress"] == {"phase": "payloads", "dryRun": True}
