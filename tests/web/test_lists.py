"""Lists: paged by keyset to the end, newest first; filters and cursors that are none are refused."""

import base64
import json
from typing import Any

import httpx
import pytest

from service.store import views_deliveries
from service.web.paging import Listed, uuid, whole
from tests.web.conftest import JOB, Api, instant, pointers, problem, tick

LISTS = ["/v1/jobs", "/v1/runs", "/v1/events", "/v1/deliveries", "/v1/subscribers", "/v1/replays", "/v1/audit"]


async def everything(client: httpx.AsyncClient, path: str, limit: int, **params: str) -> list[dict[str, Any]]:
    """Every item of a list, page by page; no page but the last is short."""
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        query = params | {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
        page = (await client.get(path, params=query)).json()
        assert set(page) == {"items", "nextCursor"}
        items += page["items"]
        cursor = page["nextCursor"]
        if cursor is None:
            return items
        assert len(page["items"]) == limit


async def filled(api: Api) -> None:
    """Seven runs, seven events, three subscribers, and the deliveries between the latter."""
    for number in range(3):
        await api.scene.subscriber(f"s{number}", f"http://127.0.0.1:1/{number}")
    for number in range(7):
        await api.client.post(f"/v1/jobs/{JOB}/ticks", json=tick(f"r{number}"))
        await api.scene.event(f"ship-{number}")


async def test_every_list_is_paged_to_its_end_newest_first(api: Api) -> None:
    await filled(api)
    runs = await everything(api.client, "/v1/runs", 3)
    assert [run["runId"] for run in runs] == [f"r{number}" for number in range(6, -1, -1)]
    events = await everything(api.client, "/v1/events", 7)
    assert [event["subject"] for event in events] == [f"ship-{number}" for number in range(6, -1, -1)]
    deliveries = await everything(api.client, "/v1/deliveries", 4)
    assert len({delivery["id"] for delivery in deliveries}) == len(deliveries) == 21
    assert [each["createdAt"] for each in deliveries] == sorted((d["createdAt"] for d in deliveries), reverse=True)
    subscribers = await everything(api.client, "/v1/subscribers", 1)
    assert [each["id"] for each in subscribers] == ["s2", "s1", "s0"]
    jobs = await everything(api.client, "/v1/jobs", 1)
    assert [job["job"] for job in jobs] == sorted(api.house.jobs)


async def test_what_comes_while_someone_pages_moves_nothing(api: Api) -> None:
    await filled(api)
    first = (await api.client.get("/v1/events", params={"limit": 4})).json()
    await api.scene.event("ship-new")
    second = (await api.client.get("/v1/events", params={"limit": 4, "cursor": first["nextCursor"]})).json()
    subjects = [event["subject"] for event in first["items"] + second["items"]]
    assert subjects == [f"ship-{number}" for number in range(6, -1, -1)]


@pytest.mark.parametrize("path", LISTS)
async def test_an_empty_database_has_lists_that_end_at_once(api: Api, path: str) -> None:
    page = (await api.client.get(path)).json()
    assert page["nextCursor"] is None
    assert len(page["items"]) == (len(api.house.jobs) if path == "/v1/jobs" else 0)


@pytest.mark.parametrize("limit", ["0", "501", "-1", "1.5", "x", "", " 5", "+5", "5_0", "٥", "9" * 30, "1e1", "null"])
@pytest.mark.parametrize("path", LISTS)
async def test_a_limit_out_of_bounds_is_refused(refusing: Api, path: str, limit: str) -> None:
    assert pointers(await refusing.client.get(path, params={"limit": limit})) == ["/query/limit"]


@pytest.mark.parametrize("path", LISTS)
async def test_the_limits_of_the_limit_are_taken(refusing: Api, path: str) -> None:
    for limit in ("1", "500"):
        assert (await refusing.client.get(path, params={"limit": limit})).status_code == 200


def _packed(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


_RUNS = Listed("runs", uuid)
_GOOD = Listed("deliveries", whole(2**63 - 1)).cursor(7)

CURSORS = {
    "empty": "",
    "no base64": "ECHO!",
    "no JSON": base64.urlsafe_b64encode(b"ECHO").decode(),
    "not UTF-8": base64.urlsafe_b64encode(b"\xff\xff\xff").decode(),
    "a list": _packed([]),
    "null": _packed(None),
    "an empty object": _packed({}),
    "nested": _packed([[[[[[[[]]]]]]]]),
    "another list's": _GOOD.replace("ZGVs", "ZGVt"),
    "damaged": _GOOD[:-6] + ("A" if _GOOD[-6] != "A" else "B") + _GOOD[-5:],
    "cut off": _GOOD[:-1],
    "padded": _GOOD + "=",
    "with something behind": _GOOD + "AAAA",
    "not ASCII": "é",
    "NUL": "a\x00b",
    "too long": "A" * 501,
    "of a huge number": Listed("deliveries", whole(2**80)).cursor(2**70),
    "of a negative number": Listed("deliveries", whole(9)).cursor(-1),
    "of a truth value": _packed({"list": "deliveries", "after": True, "check": "x"}),
}


@pytest.mark.parametrize("cursor", CURSORS.values(), ids=CURSORS)
@pytest.mark.parametrize("path", LISTS)
async def test_a_cursor_that_is_none_is_refused(refusing: Api, path: str, cursor: str) -> None:
    assert pointers(await refusing.client.get(path, params={"cursor": cursor})) == ["/query/cursor"]


async def test_a_cursor_of_another_list_is_refused(refusing: Api) -> None:
    for path in LISTS:
        for cursor in (_GOOD, _RUNS.cursor("x"), Listed("jobs", whole(1)).cursor("a")):
            answer = await refusing.client.get(path, params={"cursor": cursor})
            assert answer.status_code == (200 if (path, cursor[:12]) in _own(cursor) else 422)


def _own(cursor: str) -> list[tuple[str, str]]:
    name = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))["list"]
    return [] if name == "runs" else [(f"/v1/{name}", cursor[:12])]


UNKNOWN = {
    "an unknown parameter": ("ECHO=1", ["/query/ECHO"]),
    "another spelling": ("Limit=5", ["/query/Limit"]),
    "an odd name": ("%3Cscript%3E=1", ["/query"]),
    "a parameter twice": ("limit=5&limit=6", ["/query"]),
    "bytes that are no UTF-8": ("cursor=%FF", ["/query"]),
    "half an emoji": ("cursor=%ED%A0%BD", ["/query"]),
}


@pytest.mark.parametrize(("query", "places"), UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize("path", LISTS)
async def test_a_query_that_nobody_understands_is_refused(
    refusing: Api, path: str, query: str, places: list[str]
) -> None:
    answer = await refusing.client.get(f"{path}?{query}")
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == places


ONES = ["/v1/dispatch", "/v1/backlog", "/v1/reconciliation", f"/v1/jobs/{JOB}", "/v1/runs/x", "/v1/events/x"]
ONES += ["/v1/deliveries/x", "/v1/replays/x", "/v1/subscribers/x"]


@pytest.mark.parametrize("path", ONES)
async def test_what_takes_no_query_refuses_any(refusing: Api, path: str) -> None:
    assert pointers(await refusing.client.get(f"{path}?fresh=1")) == ["/query/fresh"]


FILTERS = [
    ("/v1/runs", "state", "ECHO"),
    ("/v1/runs", "state", ""),
    ("/v1/runs", "state", "CLAIMED"),
    ("/v1/runs", "job", "a\x00b"),
    ("/v1/runs", "job", ""),
    ("/v1/runs", "job", "x" * 201),
    ("/v1/events", "type", "a\x00b"),
    ("/v1/events", "subject", "ECHO\n"),
    ("/v1/events", "subject", "é" * 128),
    ("/v1/deliveries", "state", "ECHO"),
    ("/v1/deliveries", "subscriberId", "a\x00b"),
    ("/v1/deliveries", "runId", "nightly-1"),
    ("/v1/deliveries", "runId", "ECHO\x00"),
    ("/v1/deliveries", "eventId", "{019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11}"),
    ("/v1/deliveries", "eventType", "a\x00b"),
    ("/v1/deliveries", "since", "2026-11-30"),
    ("/v1/deliveries", "since", "ECHO"),
    ("/v1/deliveries", "until", "2026-11-30T02:00:00"),
    ("/v1/deliveries", "until", "1743294600"),
    ("/v1/deliveries", "since", "0001-01-01T00:00:00Z"),
    ("/v1/deliveries", "until", "9999-12-31T23:59:59.999999Z"),
]


@pytest.mark.parametrize(("path", "name", "value"), FILTERS)
async def test_a_filter_that_cannot_be_meant_is_refused(refusing: Api, path: str, name: str, value: str) -> None:
    assert pointers(await refusing.client.get(path, params={name: value})) == [f"/query/{name}"]


async def test_a_raw_plus_in_a_query_is_told_how_to_be_written(refusing: Api) -> None:
    answer = await refusing.client.get("/v1/deliveries?since=2026-11-30T02:00:00+02:00")
    assert "%2B" in problem(answer, 422, "invalid")["errors"][0]["detail"]
    assert (await refusing.client.get("/v1/deliveries?since=2026-11-30T02:00:00%2B02:00")).status_code == 200


async def test_a_filter_for_what_is_not_there_finds_nothing(api: Api) -> None:
    await filled(api)
    nobody = "019ad3c4-7c00-7d3e-9b1a-2f6f1f6f0a11"
    for path, name, value in (
        ("/v1/runs", "job", "<script>"),
        ("/v1/runs", "state", "failed"),
        ("/v1/events", "type", "' OR 1=1 --"),
        ("/v1/events", "subject", "ship-99"),
        ("/v1/deliveries", "state", "ambiguous"),
        ("/v1/deliveries", "subscriberId", "nobody"),
        ("/v1/deliveries", "runId", nobody),
        ("/v1/deliveries", "eventId", nobody),
        ("/v1/deliveries", "eventType", "shipment"),
        ("/v1/deliveries", "since", instant(60)),
        ("/v1/deliveries", "until", instant(-60)),
        ("/v1/deliveries", "since", "9999-12-31T23:59:59Z"),
        ("/v1/deliveries", "until", "0001-01-01T00:00:01Z"),
    ):
        answer = await api.client.get(path, params={name: value})
        assert (answer.status_code, answer.json()["items"]) == (200, []), name


async def test_a_page_that_came_to_its_bound_before_it_found_anything_leads_on(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views_deliveries, "MOST", 4)
    for number in range(3):
        await api.scene.subscriber(f"s{number}", f"http://127.0.0.1:1/{number}")
    for number in range(4):
        await api.scene.event(f"ship-{number}", "parcel.lost" if number < 2 else "shipment.expired")
    pages = [(await api.client.get("/v1/deliveries", params={"eventType": "parcel.lost"})).json()]
    while cursor := pages[-1]["nextCursor"]:
        params = {"eventType": "parcel.lost", "cursor": cursor}
        pages.append((await api.client.get("/v1/deliveries", params=params)).json())
    assert [len(page["items"]) for page in pages] == [0, 2, 4, 0]
    assert len({each["id"] for page in pages for each in page["items"]}) == 6


async def test_filters_find_what_they_name(api: Api) -> None:
    await filled(api)
    events = (await api.client.get("/v1/events")).json()["items"]
    found = await everything(api.client, "/v1/deliveries", 2, eventId=events[0]["id"])
    assert [each["subscriberId"] for each in found] == ["s2", "s1", "s0"]
    found = await everything(
        api.client,
        "/v1/deliveries",
        2,
        subscriberId="s1",
        state="pending",
        eventType="shipment.expired",
        since=instant(-60),
    )
    assert {each["subscriberId"] for each in found} == {"s1"}
    assert len(found) == 7
    assert len(await everything(api.client, "/v1/runs", 2, job=JOB, state="claimed")) == 7
    assert len(await everything(api.client, "/v1/events", 2, type="shipment.expired", subject="ship-3")) == 1
