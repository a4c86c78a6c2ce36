"""The backlog: every unfinished delivery is counted once, and each lane says how long it waits, and for what."""

from typing import Any

from service.domain.model import DeliveryState, OnDeadLetter, Ordering
from service.flow import control
from service.store import deliveries, pulse
from service.store.deliveries import Appetite
from service.web.console import overview
from tests.web.conftest import Api

NOBODY = "http://127.0.0.1:9/hook"


async def _backlog(api: Api) -> dict[str, Any]:
    answer = await api.client.get("/v1/backlog")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def _set(api: Api, slug: str, columns: str, table: str = "lanes") -> None:
    await api.scene.execute(
        f"UPDATE tocsin.{table} SET {columns} WHERE subscriber = (SELECT row FROM tocsin.subscribers WHERE id = :slug)",
        slug=slug,
    )


async def test_an_empty_house_has_nothing_to_wait_for(api: Api) -> None:
    found = await _backlog(api)
    assert found.pop("at")
    assert found == {
        "due": 0,
        "leased": 0,
        "scheduled": 0,
        "held": 0,
        "capped": False,
        "oldestDueAgeSeconds": None,
        "oldestPendingAgeSeconds": None,
        "unfannedEvents": 0,
        "oldestUnfannedAgeSeconds": None,
        "arrivalsPerMinute": 0,
        "completionsPerMinute": 0,
        "retryAmplification": None,
        "headroomPerMinute": 0,
        "drainEtaSeconds": 0,
        "drainEtaReason": None,
        "lanes": [],
    }


async def test_each_unfinished_delivery_is_counted_once_and_each_lane_says_what_it_waits_for(api: Api) -> None:
    for slug in ("due", "leased", "later", "paused", "open", "throttled", "done"):
        await api.scene.subscriber(slug, NOBODY)
    await api.scene.subscriber("chain", NOBODY, ordering=Ordering.STRICT)
    for number in range(2):
        await api.scene.event(f"ship-{number}")
    await _set(api, "leased", "next_due_at = now() - interval '1 day', claimed_at = '-infinity'")
    await _set(api, "done", f"state = '{DeliveryState.DELIVERED}', finished_at = now()", "deliveries")
    await api.scene.execute("UPDATE tocsin.lanes SET claimed_at = now()")
    await _set(api, "leased", "claimed_at = '-infinity'")
    async with api.scene.db.begin() as tx:
        assert len(await deliveries.claim(tx, Appetite(2, 2, lanes=1), worker="w", lease_seconds=60)) == 2
    await _set(
        api,
        "due",
        "next_attempt_at = now() - interval '10 minutes', created_at = now() - interval '1 hour'",
        "deliveries",
    )
    await _set(api, "later", "next_attempt_at = now() + interval '1 hour'", "deliveries")
    await _set(api, "paused", "state = 'paused'")
    await _set(api, "open", "open_until = now() + interval '1 hour'")
    await _set(api, "throttled", "throttled_until = now() + interval '1 hour'")
    found = await _backlog(api)
    # Of the chain the head is due, and the other one waits for it.
    assert [found[name] for name in ("due", "leased", "scheduled", "held", "capped")] == [3, 2, 2, 7, False]
    assert 600 <= found["oldestDueAgeSeconds"] < 660
    assert 3600 <= found["oldestPendingAgeSeconds"] < 3660
    assert (found["drainEtaSeconds"], found["drainEtaReason"]) == (None, "no-data")
    lanes = {lane["subscriberId"]: (lane["due"], lane["reason"]) for lane in found["lanes"]}
    assert [lane["subscriberId"] for lane in found["lanes"]][:1] == ["due"]
    assert [lane["subscriberId"] for lane in found["lanes"]][-1:] == ["paused"]
    assert lanes == {
        "due": (2, None),
        "chain": (1, None),
        "open": (2, "circuit-open"),
        "throttled": (2, "throttled"),
        "paused": (2, "subscriber-paused"),
    }
    assert {lane["subscriberId"] for lane in found["lanes"] if lane["nextAt"] is None} == {"paused"}


async def test_a_pause_of_all_dispatch_holds_everything_and_says_that_nothing_drains(api: Api) -> None:
    await api.scene.subscriber("acme", NOBODY)
    await api.scene.event()
    await control.pause_dispatch(api.scene.db, actor="ada", reason="a bad release")
    found = await _backlog(api)
    assert [found[name] for name in ("due", "held", "drainEtaSeconds", "drainEtaReason")] == [
        0,
        1,
        None,
        "dispatch-paused",
    ]
    assert [lane["reason"] for lane in found["lanes"]] == ["dispatch-paused"]


async def test_what_waits_in_a_full_lane_is_due_and_the_lane_says_that_it_is_full(api: Api) -> None:
    await api.scene.subscriber("busy", NOBODY, max_concurrency=1)
    for number in range(3):
        await api.scene.event(f"ship-{number}")
    async with api.scene.db.begin() as tx:
        assert len(await deliveries.claim(tx, Appetite(1, 1), worker="w", lease_seconds=60)) == 1
    found = await _backlog(api)
    assert [found[name] for name in ("due", "leased", "scheduled", "held")] == [2, 1, 0, 0]
    assert found["oldestDueAgeSeconds"] is not None
    assert [(lane["due"], lane["reason"]) for lane in found["lanes"]] == [(2, "lane-full")]
    listed = (await api.client.get("/v1/deliveries?state=pending")).json()["items"]
    assert [each["heldBy"] for each in listed] == ["lane-full"] * 2


async def test_a_lane_behind_a_dead_letter_is_among_the_worst(api: Api) -> None:
    await api.scene.subscriber("chain", NOBODY, ordering=Ordering.STRICT, on_dead_letter=OnDeadLetter.BLOCK)
    for number in range(2):
        await api.scene.event(f"ship-{number}")
    await api.scene.execute(
        "UPDATE tocsin.deliveries SET state = 'rejected', finished_at = now() WHERE next_attempt_at < 'infinity'"
    )
    found = await _backlog(api)
    assert (found["due"], found["held"], found["oldestDueAgeSeconds"]) == (0, 1, None)
    assert [(lane["reason"], lane["oldestDueAgeSeconds"]) for lane in found["lanes"]] == [("predecessor", None)]


async def test_the_console_shows_the_pace_and_the_last_hour(api: Api) -> None:
    await api.scene.subscriber("acme", NOBODY)
    await api.scene.event()
    async with api.scene.db.begin() as tx:
        await pulse.add(tx, {"attempt.delivered": 7, "attempt.rejected": 2, "ended.delivered": 7, "scan": 1})
    pace = (await overview.read(api.house)).pace
    assert pace is not None
    assert (pace.due, len(pace.hour), [lane.subscriber_id for lane in pace.lanes]) == (1, 60, ["acme"])
    assert {(part.label, part.value) for part in pace.sums} == {("delivered", 7), ("rejected", 2)}


async def test_published_events_that_are_no_deliveries_yet_are_told_with_the_age_of_the_oldest(api: Api) -> None:
    await api.scene.subscriber("acme", NOBODY)
    for number in range(2):
        await api.scene.event(f"ship-{number}")
    await api.scene.execute("UPDATE tocsin.events SET fanned_out_at = NULL, created_at = now() - interval '1 hour'")
    found = await _backlog(api)
    assert found["unfannedEvents"] == 2
    assert 3600 <= found["oldestUnfannedAgeSeconds"] < 3660
