"""Deliveries over HTTP: where each stands, why it waits, and the whole evidence of what was tried."""

from typing import Any

import pytest

from tests.web.conftest import Api, problem


async def one(api: Api) -> str:
    """The path of the only delivery, freshly made."""
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook?token=ECHO")
    await api.scene.event("ship-1")
    [item] = (await api.client.get("/v1/deliveries")).json()["items"]
    return f"/v1/deliveries/{item['id']}"


async def read(api: Api, path: str) -> dict[str, Any]:
    """The delivery; what the list says of it must be the same."""
    full: dict[str, Any] = (await api.client.get(path)).json()
    [item] = (await api.client.get("/v1/deliveries")).json()["items"]
    assert {name: full[name] for name in item} == item
    assert set(full) - set(item) == {"attempts", "replays", "actions"}
    assert "ECHO" not in str(full)
    return full


async def test_a_fresh_delivery_is_pending_and_due(api: Api) -> None:
    told = await read(api, await one(api))
    [event] = (await api.client.get("/v1/events")).json()["items"]
    assert told["key"] == f"{event['id']}:billing"
    assert (told["eventId"], told["payloadSha256"]) == (event["id"], event["payloadSha256"])
    assert (told["eventType"], told["subject"], told["version"]) == ("shipment.expired", "ship-1", 1)
    assert (told["subscriberId"], told["tenantId"], told["run"]) == ("billing", "default", None)
    assert (told["state"], told["heldBy"], told["reason"]) == ("pending", None, None)
    assert (told["generation"], told["attemptCount"], told["generationAttempts"]) == (1, 0, 0)
    assert (told["leaseOwner"], told["leaseExpiresAt"], told["finishedAt"]) == (None, None, None)
    assert told["nextAttemptAt"] is not None
    assert (told["lastOutcome"], told["attempts"], told["replays"]) == (None, [], [])


HOLDS = [
    ("state = 'paused'", "subscriber-paused"),
    ("state = 'disabled'", "subscriber-disabled"),
    ("throttled_until = now() + interval '1 minute'", "throttled"),
    ("throttled_until = now() - interval '1 minute'", None),
    ("state = 'paused', throttled_until = now() + interval '1 minute'", "subscriber-paused"),
]


@pytest.mark.parametrize(("change", "held_by"), HOLDS)
async def test_a_delivery_that_waits_says_what_holds_it(api: Api, change: str, held_by: str | None) -> None:
    path = await one(api)
    await api.scene.execute(f"UPDATE tocsin.lanes SET {change}")
    assert (await read(api, path))["heldBy"] == held_by
    await api.scene.execute("UPDATE tocsin.deliveries SET state = 'delivered', finished_at = now()")
    assert (await read(api, path))["heldBy"] is None


async def test_a_leased_delivery_names_its_worker(api: Api) -> None:
    path = await one(api)
    await api.scene.execute(
        "UPDATE tocsin.deliveries SET lease_owner = 'w1', lease_expires_at = now() + interval '1 minute'"
    )
    await api.scene.execute("UPDATE tocsin.lanes SET state = 'paused'")
    told = await read(api, path)
    assert (told["state"], told["leaseOwner"], told["heldBy"]) == ("leased", "w1", None)
    assert told["leaseExpiresAt"] is not None
    for state, count in (("leased", 1), ("pending", 0), ("delivered", 0)):
        found = (await api.client.get("/v1/deliveries", params={"state": state})).json()["items"]
        assert len(found) == count


TERMINAL = ["delivered", "exhausted", "rejected", "ambiguous", "cancelled"]


@pytest.mark.parametrize("state", TERMINAL)
async def test_a_terminal_delivery_has_no_next_attempt_and_says_why(api: Api, state: str) -> None:
    path = await one(api)
    await api.scene.execute(
        "UPDATE tocsin.deliveries SET state = :state, finished_at = now(), reason = 'because'", state=state
    )
    told = await read(api, path)
    assert (told["state"], told["nextAttemptAt"], told["reason"]) == (state, None, "because")
    assert told["finishedAt"] is not None
    for asked in TERMINAL:
        found = (await api.client.get("/v1/deliveries", params={"state": asked})).json()["items"]
        assert len(found) == (asked == state)


async def test_the_evidence_of_every_attempt_is_shown_oldest_first(api: Api) -> None:
    path = await one(api)
    await api.scene.execute(
        "INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, late, status, detail, "
        "started_at, duration_ms, worker, excerpt) "
        "SELECT row, n, 1, n, o, true, l, s, d, now(), 5, 'w1', x FROM tocsin.deliveries, (VALUES "
        "(1, 'throttled', false, 429, 'HTTP 429', 'slow down'), (2, 'timeout', false, NULL, 'no answer', NULL), "
        "(3, 'delivered', true, 200, NULL, 'ok')) v (n, o, l, s, d, x)"
    )
    told = await read(api, path)
    assert [each["outcome"] for each in told["attempts"]] == ["throttled", "timeout", "delivered"]
    assert [each["late"] for each in told["attempts"]] == [False, False, True]
    first = told["attempts"][0]
    assert {name: value for name, value in first.items() if name != "startedAt"} == {
        "number": 1,
        "generation": 1,
        "outcome": "throttled",
        "status": 429,
        "detail": "HTTP 429",
        "counted": True,
        "late": False,
        "durationMs": 5,
        "worker": "w1",
        "responseExcerpt": "slow down",
    }
    assert told["lastOutcome"] == {"class": "timeout", "status": None, "detail": "no answer"}


async def test_the_delivery_of_a_deleted_subscriber_can_still_be_read(api: Api) -> None:
    path = await one(api)
    assert (await api.client.delete("/v1/subscribers/billing")).status_code == 204
    told = await read(api, path)
    assert (told["state"], told["subscriberId"]) == ("cancelled", "billing")


@pytest.mark.parametrize("id_", ["dlv_", "x", "a%00b", "%FF", "dlv_" + "0" * 32, "dlv_" + "v" * 32, "x" * 5000])
async def test_a_delivery_that_is_not_there_is_not_found(refusing: Api, id_: str) -> None:
    problem(await refusing.client.get(f"/v1/deliveries/{id_}"), 404, "not-found")
