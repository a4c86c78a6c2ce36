"""Replays, resolutions and dead letters over HTTP: what is answered, refused, and said of whom."""

from typing import Any
from uuid import uuid4

import pytest

from service.domain.model import Scope
from service.flow import replaying
from tests.web.conftest import Api, pointers, problem


async def dead(api: Api, *, state: str = "rejected", reason: str = "rejected-by-receiver") -> str:
    """The path of the only delivery, which is a dead letter."""
    await api.scene.subscriber("billing", "http://127.0.0.1:1/hook?token=ECHO")
    await api.scene.event("ship-1")
    await api.scene.execute(
        "UPDATE tocsin.deliveries SET state = :state, reason = :reason, finished_at = now()", state=state, reason=reason
    )
    [item] = (await api.client.get("/v1/deliveries")).json()["items"]
    return f"/v1/deliveries/{item['id']}"


async def test_a_replay_shows_the_delivery_with_its_new_generation_and_the_keys_holder(api: Api) -> None:
    path = await dead(api)
    alice = await api.key("alice", Scope.OPERATE)
    headers = alice | {"idempotency-key": "once"}
    replay = f"{path}/replay"
    answer = await api.client.post(replay, json={"reason": " mended "}, headers=headers)
    again = await api.client.post(replay, json={"reason": " mended "}, headers=headers)
    assert (answer.status_code, again.status_code, again.json()) == (202, 202, answer.json())
    told = answer.json()
    assert (told["state"], told["generation"], told["reason"], told["finishedAt"]) == ("pending", 2, None, None)
    [opened] = told["replays"]
    assert {name: value for name, value in opened.items() if name != "at"} == {
        "generation": 2,
        "requestedBy": "alice",
        "reason": "mended",
        "replayId": None,
        "wasState": "rejected",
        "wasReason": "rejected-by-receiver",
    }
    [action] = told["actions"]
    assert (action["actor"], action["action"], action["reason"]) == ("alice", "delivery.replayed", "mended")
    assert (await api.client.get(path)).json() == told
    problem(await api.client.post(replay, json={"reason": "again"}), 409, "conflict")


@pytest.mark.parametrize("verb", ["replay", "resolve", "cancel"])
async def test_a_reason_is_asked_for_and_nobody_says_who_he_is(api: Api, verb: str) -> None:
    path = f"{await dead(api)}/{verb}"
    body: dict[str, Any] = {"resolution": "delivered"} if verb == "resolve" else {}
    for reason in ("", "  ", "\u200b", "a\x00b", "a\nb", "x" * 501, None, 7):
        assert pointers(await api.client.post(path, json=body | {"reason": reason})) == ["/reason"]
    assert pointers(await api.client.post(path, json=body)) == ["/reason"]
    spoofed = await api.client.post(path, json=body | {"reason": "r", "requestedBy": "ECHO"})
    assert pointers(spoofed) == ["/requestedBy"]
    reader = await api.key("reader", Scope.READ)
    problem(await api.client.post(path, json=body | {"reason": "r"}, headers=reader), 403, "forbidden")
    assert (await api.client.get(path.removesuffix(f"/{verb}"))).json()["actions"] == []


async def test_a_dead_letter_is_resolved_and_not_cancelled(api: Api) -> None:
    path = await dead(api)
    refusal = problem(await api.client.post(f"{path}/cancel", json={"reason": "r"}), 409, "conflict")
    assert "resolve" in refusal["detail"]
    assert pointers(await api.client.post(f"{path}/resolve", json={"reason": "r", "resolution": "rejected"})) == [
        "/resolution"
    ]
    told = (await api.client.post(f"{path}/resolve", json={"reason": "r", "resolution": "delivered"})).json()
    assert (told["state"], told["reason"], told["heldBy"]) == ("delivered", "resolved-by-operator", None)
    problem(await api.client.post(f"{path}/resolve", json={"reason": "r", "resolution": "cancelled"}), 409, "conflict")


async def test_what_was_purged_is_gone(api: Api) -> None:
    path = await dead(api)
    await api.scene.execute("UPDATE tocsin.events SET body = NULL, purged_at = now()")
    problem(await api.client.post(f"{path}/replay", json={"reason": "r"}), 410, "payload-purged")
    bulk = {"filter": {"subscriberId": "billing"}, "reason": "r", "dryRun": True}
    problem(await api.client.post("/v1/replays", json=bulk), 410, "payload-purged")


async def test_a_bulk_replay_is_counted_started_followed_and_stopped(api: Api) -> None:
    path = await dead(api, state="exhausted", reason="attempts")
    wanted = {"filter": {"reason": "attempts", "since": "2020-01-01T00:00:00Z"}, "reason": "down all night"}
    dry = await api.client.post("/v1/replays", json=wanted | {"dryRun": True, "ratePerSecond": 0.5})
    assert (dry.status_code, "location" in dry.headers) == (202, False)
    assert (dry.json()["id"], dry.json()["state"], dry.json()["etaSeconds"]) == (None, "dry-run", 2.0)
    started = await api.client.post("/v1/replays", json=wanted)
    told = started.json()
    assert (started.status_code, started.headers["location"]) == (202, f"/v1/replays/{told['id']}")
    assert {name: value for name, value in told.items() if name not in ("id", "createdAt")} == {
        "filter": wanted["filter"],
        "reason": "down all night",
        "requestedBy": "bootstrap",
        "state": "running",
        "matched": 1,
        "replayed": 0,
        "skipped": {"payloadPurged": 0, "subscriberDeleted": 0, "tenantChanged": 0, "changed": 0},
        "ratePerSecond": 100.0,
        "finishedAt": None,
        "etaSeconds": 0.0,
    }
    assert await replaying.once(api.house.db, api.house.doorbell)
    done = (await api.client.get(f"/v1/replays/{told['id']}")).json()
    assert (done["state"], done["replayed"], done["etaSeconds"]) == ("completed", 1, None)
    assert (await api.client.get("/v1/replays")).json()["items"] == [done]
    assert (await api.client.get(path)).json()["replays"][0]["replayId"] == told["id"]
    stop = f"/v1/replays/{told['id']}/cancel"
    problem(await api.client.post(stop, json={"reason": "too late"}), 409, "conflict")
    problem(await api.client.post(f"/v1/replays/{uuid4()}/cancel", json={"reason": "r"}), 404, "not-found")


REFUSED = [
    ({}, ["/filter"]),
    ({"state": "pending"}, ["/filter/state"]),
    ({"state": "ECHO"}, ["/filter/state"]),
    ({"runId": "ECHO"}, ["/filter/runId"]),
    ({"subscriberId": "ECHO"}, ["/filter/subscriberId"]),
    ({"since": "yesterday"}, ["/filter/since"]),
    ({"subscriberId": "a\x00b"}, ["/filter/subscriberId"]),
    ({"everything": True}, ["/filter/everything"]),
]


@pytest.mark.parametrize(("sought", "where"), REFUSED)
async def test_a_filter_that_is_none_is_refused(refusing: Api, sought: dict[str, Any], where: list[str]) -> None:
    answer = await refusing.client.post("/v1/replays", json={"filter": sought, "reason": "r"})
    assert pointers(answer) == where


@pytest.mark.parametrize("rate", [0, -1, 0.09, 10_001, "100", True, None])
async def test_a_rate_out_of_its_bounds_is_refused(refusing: Api, rate: object) -> None:
    body = {"filter": {"subscriberId": "a"}, "reason": "r", "ratePerSecond": rate}
    assert pointers(await refusing.client.post("/v1/replays", json=body)) == ["/ratePerSecond"]


@pytest.mark.parametrize(
    "path", ["/v1/replays/x", "/v1/replays/422fcd4b-aad0-404c-af02-524df8382a10", "/v1/replays/a%00b"]
)
async def test_a_replay_that_is_not_there_is_not_found(refusing: Api, path: str) -> None:
    problem(await refusing.client.get(path), 404, "not-found")


async def test_dead_letters_are_told_apart_by_cause(api: Api) -> None:
    for slug in ("one", "two"):
        await api.scene.subscriber(slug, "http://127.0.0.1:1/")
    for n in range(3):
        await api.scene.event(f"ship-{n}")
    await api.scene.execute("UPDATE tocsin.deliveries SET state = 'rejected', reason = 'r', finished_at = now()")
    await api.scene.execute(
        "INSERT INTO tocsin.attempts (delivery, number, generation, lease_seq, outcome, counted, late, status, detail, "
        "started_at, duration_ms, worker) SELECT row, n, 1, n, o, true, n > 2, 404, o, now(), 1, 'w' "
        "FROM tocsin.deliveries, (VALUES (1, 'timeout'), (2, 'rejected'), (3, 'delivered')) v (n, o)"
    )
    await api.scene.execute(
        "UPDATE tocsin.deliveries SET state = 'exhausted', reason = 'deadline' WHERE row = "
        "(SELECT max(row) FROM tocsin.deliveries)"
    )
    told = (await api.client.get("/v1/dead-letters")).json()
    kinds = [[each[name] for name in ("state", "reason", "class", "count", "subscribers")] for each in told["groups"]]
    assert kinds == [["rejected", "r", "rejected", 5, 2], ["exhausted", "deadline", "rejected", 1, 1]]
    assert {(each["subscriberId"], each["detail"]) for each in told["groups"]} == {(None, "rejected")}
    assert (told["read"], told["truncated"]) == (6, False)
    example = (await api.client.get(f"/v1/deliveries/{told['groups'][1]['example']}")).json()
    assert example["reason"] == "deadline"
    each = (await api.client.get("/v1/dead-letters", params={"bySubscriber": "true"})).json()["groups"]
    assert sorted((group["subscriberId"], group["count"]) for group in each) == [("one", 3), ("two", 1), ("two", 2)]
    of_one = (await api.client.get("/v1/dead-letters", params={"subscriberId": "one"})).json()
    assert [group["count"] for group in of_one["groups"]] == [3]
    found = (await api.client.get("/v1/deliveries", params={"reason": "deadline"})).json()["items"]
    assert [item["state"] for item in found] == ["exhausted"]
    assert pointers(await api.client.get("/v1/dead-letters", params={"bySubscriber": "ECHO"})) == [
        "/query/bySubscriber"
    ]


async def test_a_reason_that_no_delivery_ends_for_is_refused_with_the_list(api: Api) -> None:
    bulk = {"filter": {"reason": "bogus"}, "reason": "r"}
    for answer, where in (
        (await api.client.post("/v1/replays", json=bulk), "/filter/reason"),
        (await api.client.get("/v1/deliveries", params={"reason": "bogus\x00"}), "/query/reason"),
    ):
        [fault] = problem(answer, 422, "invalid")["errors"]
        assert (fault["pointer"], "attempts, blocked-by-policy" in fault["detail"]) == (where, True)
