"""Why a subscriber got an event, or did not: the first thing that explains it, and the mend."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from service.domain.mends import ENDED, HELD
from service.domain.model import HeldBy, OnDeadLetter, Ordering, Outcome, Scope
from service.domain.retry import MAYBE_RECEIVED
from service.flow.explaining import Cause
from tests.web.conftest import Api, pointers

Arrange = Callable[[Api], Awaitable[str]]
"""Brings about a state of affairs, and returns the event that is asked for."""

ROOT = Path(__file__).parents[2]
_URL = "http://127.0.0.1:1/hook"


async def event(api: Api, **wanted: object) -> str:
    """The subscriber `billing` and an event that is fanned out to it, if it matches."""
    await api.scene.subscriber("billing", _URL, **wanted)
    return str(await api.scene.event())


async def published(api: Api, **more: object) -> str:
    """The subscriber `billing` and an event that nobody has fanned out yet."""
    await api.scene.subscriber("billing", _URL)
    body = {"type": "shipment.expired", "subject": "ship-1", "version": 1, "data": {}, **more}
    return str((await api.client.post("/v1/events", json=body)).json()["id"])


def changed(statement: str) -> Arrange:
    """As in `event`, and something else happened since."""

    async def arrange(api: Api) -> str:
        found = await event(api)
        await api.scene.execute(statement)
        return found

    return arrange


async def created_later(api: Api) -> str:
    found = str(await api.scene.event())
    await api.scene.subscriber("billing", _URL)
    return found


async def deleted_before(api: Api) -> str:
    await api.scene.subscriber("billing", _URL)
    await api.client.delete("/v1/subscribers/billing")
    return str(await api.scene.event())


async def others_test(api: Api) -> str:
    await api.scene.subscriber("billing", _URL, event_types=("tocsin.*",))
    await api.scene.subscriber("other", _URL + "/other")
    return str((await api.client.post("/v1/subscribers/other/test")).json()["eventId"])


def in_run(state: str) -> Arrange:
    """An event whose run stands so."""

    async def arrange(api: Api) -> str:
        found = await published(api)
        await api.scene.execute(
            "WITH r AS (INSERT INTO tocsin.runs (id, job, run_id, cutoff, source, state) "
            "VALUES (gen_random_uuid(), 'shipments.expire', 'r1', now(), 'hmac', :state) RETURNING id) "
            "UPDATE tocsin.events SET run_id = r.id FROM r",
            state=state,
        )
        return found

    return arrange


def found_by_a_run(arrange: Arrange) -> Arrange:
    """The same, of an event that nobody has published."""

    async def arranged(api: Api) -> str:
        found = await arrange(api)
        await api.scene.execute(
            "WITH r AS (INSERT INTO tocsin.runs (id, job, run_id, cutoff, source, state) "
            "VALUES (gen_random_uuid(), 'shipments.expire', 'r1', now(), 'hmac', 'completed') RETURNING id) "
            "UPDATE tocsin.events SET run_id = r.id FROM r"
        )
        return found

    return arranged


async def deleted_since(api: Api) -> str:
    found = await created_later(api)
    await api.client.delete("/v1/subscribers/billing")
    return found


async def own(api: Api) -> str:
    found = str(await api.scene.event(type_="tocsin.run.failed"))
    await api.scene.subscriber("billing", _URL, event_types=("tocsin.*",))
    return found


_PURGED = "UPDATE tocsin.events SET body = NULL, purged_at = now()"
_ENDED = "UPDATE tocsin.deliveries SET finished_at = now(), state = "

CASES: dict[str, tuple[Arrange, Cause, str]] = {
    "waits": (event, Cause.WAITING, "not tried yet"),
    "tried": (changed("UPDATE tocsin.deliveries SET attempt_count = 3"), Cause.WAITING, "3 times"),
    "sent now": (changed("UPDATE tocsin.deliveries SET lease_owner = 'w7'"), Cause.LEASED, "w7"),
    "held": (changed("UPDATE tocsin.lanes SET state = 'paused'"), Cause.HELD, "tocsin resume subscriber billing"),
    "dispatch": (changed("UPDATE tocsin.dispatch SET paused = true"), Cause.HELD, "tocsin resume dispatch"),
    "delivered": (changed(_ENDED + "'delivered'"), Cause.DELIVERED, ":billing"),
    "dead": (changed(_ENDED + "'exhausted', reason = 'attempts'"), Cause.ENDED, "tocsin replay dlv_"),
    "shadow": (changed(_ENDED + "'delivered', reason = 'shadow'"), Cause.ENDED, "mode to live"),
    "of another tenant": (lambda api: event(api, tenant_id="acme"), Cause.OTHER_TENANT, "acme"),
    "of another type": (lambda api: event(api, event_types=("order.*",)), Cause.OTHER_TYPES, "shipment.*"),
    "a test of another": (others_test, Cause.OTHERS_TEST, "to other alone"),
    "deleted before": (deleted_before, Cause.SUBSCRIBER_DELETED, "put it again"),
    "created later": (created_later, Cause.CREATED_LATER, "next version"),
    "created later, of a run": (found_by_a_run(created_later), Cause.CREATED_LATER, "as a version above 1"),
    "created later, deleted since": (deleted_since, Cause.CREATED_LATER, "put it again"),
    "created later, Tocsin's own": (own, Cause.CREATED_LATER, "Nobody can publish"),
    "not yet": (published, Cause.NOT_FANNED_OUT, "tocsin doctor"),
    "due later": (
        lambda api: published(api, dueAt="2100-01-01T00:00:00Z"),
        Cause.NOT_FANNED_OUT,
        "2100-01-01T00:00:00",
    ),
    "in a held run": (in_run("held"), Cause.NOT_FANNED_OUT, "tocsin resume job shipments.expire"),
    "in a failed run": (in_run("failed"), Cause.NOT_FANNED_OUT, "tocsin run retry"),
    "changed later": (
        changed("WITH d AS (DELETE FROM tocsin.deliveries) UPDATE tocsin.subscribers SET updated_at = now()"),
        Cause.CHANGED_LATER,
        "tocsin audit --object subscriber:billing",
    ),
    "gone": (changed("DELETE FROM tocsin.deliveries"), Cause.NOT_ON_RECORD, "retention"),
}


@pytest.mark.parametrize(("arrange", "cause", "mend"), CASES.values(), ids=CASES)
async def test_the_first_thing_that_explains_it_is_told_with_its_mend(
    api: Api, arrange: Arrange, cause: Cause, mend: str
) -> None:
    event_id = await arrange(api)
    reader = await api.key("reader", Scope.READ)
    params = {"eventId": event_id, "subscriberId": "billing"}
    told = (await api.client.get("/v1/explain", params=params, headers=reader)).json()
    assert (told["cause"], mend in told["verdict"]) == (cause.value, True), told["verdict"]
    assert (told["event"]["id"], told["subscriber"]["id"]) == (event_id, "billing")
    assert (told["delivery"] is None) == (cause not in {"waiting", "leased", "held", "delivered", "ended"})
    assert bool(told["matching"]) == (cause != Cause.OTHER_TYPES)
    assert "{" not in told["verdict"]


async def test_what_there_is_not_is_told_and_what_cannot_be_is_refused(api: Api) -> None:
    known = await event(api)
    nothing = {"eventId": str(uuid4()), "subscriberId": "billing"}
    told = (await api.client.get("/v1/explain", params=nothing)).json()
    assert (told["cause"], told["event"], told["subscriber"]["id"]) == ("no-event", None, "billing")
    told = (await api.client.get("/v1/explain", params={"eventId": known, "subscriberId": "nobody"})).json()
    assert (told["cause"], told["subscriber"], told["event"]["id"]) == ("no-subscriber", None, known)
    assert pointers(await api.client.get("/v1/explain", params={"eventId": "ECHO", "subscriberId": "a\x00b"})) == [
        "/query/eventId",
        "/query/subscriberId",
    ]


async def test_a_purged_payload_is_told_beside_what_ended_it(api: Api) -> None:
    arrange = changed(_ENDED + "'exhausted', reason = 'deadline'")
    params = {"eventId": await arrange(api), "subscriberId": "billing"}
    await api.scene.execute("UPDATE tocsin.events SET body = NULL, purged_at = now()")
    told = (await api.client.get("/v1/explain", params=params)).json()
    assert "cannot be sent again" in told["verdict"]


def test_whatever_holds_or_ends_a_delivery_has_a_mend() -> None:
    assert set(HELD) == set(HeldBy)
    assert {f"{Outcome(each).value}-may-have-been-applied" for each in MAYBE_RECEIVED} <= set(ENDED)
    text = (ROOT / "docs/outcomes.md").read_text(encoding="utf-8")
    assert all(f"| `{reason}` |" in text for reason in ENDED)


@pytest.mark.parametrize("arrange", [created_later, changed(_PURGED), changed("DELETE FROM tocsin.deliveries")])
async def test_what_a_run_found_is_never_to_be_published_by_hand(api: Api, arrange: Arrange) -> None:
    event_id = await found_by_a_run(arrange)(api)
    await api.scene.execute(_ENDED + "'rejected', reason = 'payload-purged'")
    told = (await api.client.get("/v1/explain", params={"eventId": event_id, "subscriberId": "billing"})).json()
    assert ("publish the subject's next version" in told["verdict"], "Do not publish" in told["verdict"]) == (
        False,
        True,
    )


async def test_before_an_event_is_fanned_out_the_mend_alone_is_enough(api: Api) -> None:
    event_id = await published(api, dueAt="2100-01-01T00:00:00Z")
    for statement, cause in (
        ("UPDATE tocsin.subscribers SET event_types = '{order.*}'", "other-types"),
        ("UPDATE tocsin.subscribers SET deleted_at = now(), event_types = '{*}'", "subscriber-deleted"),
    ):
        await api.scene.execute(statement)
        told = (await api.client.get("/v1/explain", params={"eventId": event_id, "subscriberId": "billing"})).json()
        assert (told["cause"], "nothing else is needed" in told["verdict"]) == (cause, True), told["verdict"]
        assert ("next version" in told["verdict"], "2100-01-01" in told["verdict"]) == (False, True)


async def test_the_delivery_that_an_ordered_one_waits_for_is_named(api: Api) -> None:
    await api.scene.subscriber("billing", _URL, ordering=Ordering.SUBJECT, on_dead_letter=OnDeadLetter.BLOCK)
    events = [await api.scene.event(version=version) for version in (1, 2, 3)]
    await api.scene.event("another", version=1)
    first, *_ = await api.scene.views("billing")
    params = {"eventId": f"{events[2]}:billing"}
    waits = (await api.client.get("/v1/explain", params=params)).json()
    await api.scene.execute(_ENDED + "'exhausted', reason = 'attempts' WHERE row = :row", row=first.row)
    blocked = (await api.client.get("/v1/explain", params=params)).json()
    assert [each["predecessor"]["id"] for each in (waits, blocked)] == [first.id] * 2
    assert f"{first.id} before it is pending" in waits["verdict"]
    assert f"{first.id} before it is exhausted and blocks it" in blocked["verdict"]
    assert f'`tocsin replay {first.id} --reason "…"`' in blocked["verdict"]
    await api.scene.execute("UPDATE tocsin.lanes SET on_dead_letter = 'skip'")
    head = (await api.client.get("/v1/explain", params=params)).json()
    assert head["predecessor"]["eventId"] == str(events[1])


async def test_a_whole_webhook_id_names_the_subscriber_too(api: Api) -> None:
    event_id = await event(api)
    key = f"{event_id}:billing"
    for params in ({"eventId": key}, {"eventId": key, "subscriberId": "billing"}):
        assert (await api.client.get("/v1/explain", params=params)).json()["cause"] == "waiting"
    for params in ({"eventId": key, "subscriberId": "other"}, {"eventId": event_id}):
        assert pointers(await api.client.get("/v1/explain", params=params)) == ["/query/subscriberId"]
    assert pointers(await api.client.get("/v1/explain", params={"eventId": key + "\x00ECHO"})) == ["/query/eventId"]


def test_every_reason_of_the_page_is_known_and_no_other() -> None:
    page = (ROOT / "docs/outcomes.md").read_text(encoding="utf-8").split("## Why it ended")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z_-]+)` \|", page, re.MULTILINE)) == set(ENDED)
