"""Subscribers at the HTTP door: the whole life of one, who may do what, and what is refused without a trace."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from service.domain.model import Scope
from service.domain.signing import decode_secret, new_secret
from tests.web.conftest import Api, pointers, problem

PATH = "/v1/subscribers/acme"
URL = "https://203.0.114.7/hook"
BODY = {"url": URL, "eventTypes": ["shipment.*"]}

DEFAULTS: dict[str, Any] = {
    "id": "acme",
    "tenantId": "default",
    "url": URL,
    "eventTypes": ["shipment.*"],
    "state": "active",
    "stateReason": None,
    "headOfLineAt": None,
    "mode": "live",
    "idempotent": True,
    "ordering": "none",
    "onDeadLetter": "skip",
    "maxConcurrency": 16,
    "ratePerSecond": None,
    "timeoutSeconds": 15,
    "maxAttempts": 8,
    "backoffBaseSeconds": 1,
    "backoffCapSeconds": 900,
    "deadlineSeconds": 259200,
    "headers": {},
}

EVERYTHING: dict[str, Any] = {
    "tenantId": "north",
    "url": URL + "/T?token=x",
    "eventTypes": ["order.paid", "shipment.*"],
    "mode": "shadow",
    "idempotent": False,
    "ordering": "strict",
    "onDeadLetter": "block",
    "maxConcurrency": 1,
    "ratePerSecond": 0.5,
    "timeoutSeconds": 20,
    "maxAttempts": 2,
    "backoffBaseSeconds": 0.5,
    "backoffCapSeconds": 60,
    "deadlineSeconds": 3600,
    "headers": {"x-team": "north"},
}


def without_times(answer: httpx.Response) -> dict[str, Any]:
    """The answer's subscriber, but for what differs each time."""
    return {name: value for name, value in answer.json().items() if name not in ("createdAt", "updatedAt", "secret")}


async def put(client: httpx.AsyncClient, slug: str = "acme", **changes: Any) -> httpx.Response:
    return await client.put(f"/v1/subscribers/{slug}", json=BODY | changes)


async def test_a_subscriber_is_created_with_every_default_of_the_contract(client: httpx.AsyncClient) -> None:
    answer = await put(client)
    assert answer.status_code == 201
    assert answer.headers["location"] == PATH
    assert without_times(answer) == DEFAULTS
    assert len(decode_secret(answer.json()["secret"])) == 32


async def test_every_field_is_kept_as_it_was_put(client: httpx.AsyncClient) -> None:
    created = await client.put(PATH, json=EVERYTHING)
    assert created.status_code == 201
    read = await client.get(PATH)
    assert without_times(read) == DEFAULTS | EVERYTHING
    assert read.json().items() <= created.json().items()


async def test_only_who_may_set_headers_sees_their_values(api: Api, client: httpx.AsyncClient) -> None:
    put_, masked = {"authorization": "Bearer ECHO"}, {"authorization": "***"}
    assert (await put(client, headers=put_)).json()["headers"] == put_
    assert (await client.get(PATH)).json()["headers"] == put_
    assert (await client.get("/v1/subscribers")).json()["items"][0]["headers"] == put_
    key: dict[str, str] = {}
    for scope in (Scope.READ, Scope.OPERATE):
        key = await api.key(f"of-{scope}", scope)
        assert (await client.get(PATH, headers=key)).json()["headers"] == masked
        assert (await client.get("/v1/subscribers", headers=key)).json()["items"][0]["headers"] == masked
    assert (await client.post(PATH + "/pause", headers=key)).json()["headers"] == masked
    assert (await client.post(PATH + "/resume", headers=key)).json()["headers"] == masked
    assert pointers(await put(client, headers=masked)) == ["/headers/authorization"]
    assert (await client.get(PATH)).json()["headers"] == put_


async def test_event_types_that_are_left_out_mean_all(client: httpx.AsyncClient) -> None:
    assert (await client.put(PATH, json={"url": URL})).json()["eventTypes"] == ["*"]


async def test_the_same_put_again_is_200_and_changes_nothing(api: Api, client: httpx.AsyncClient) -> None:
    await put(client)
    before = await client.get(PATH)
    again = await put(client)
    assert again.status_code == 200
    assert again.content == before.content
    assert (await api.rows())["audit"] == 1


async def test_a_put_puts_back_the_default_of_what_it_leaves_out(client: httpx.AsyncClient) -> None:
    await client.put(PATH, json=EVERYTHING)
    answer = await put(client)
    assert answer.status_code == 200
    assert without_times(answer) == DEFAULTS


async def test_the_id_may_stand_in_the_body_when_it_is_the_one_in_the_path(client: httpx.AsyncClient) -> None:
    assert (await put(client, id="acme")).status_code == 201
    assert pointers(await put(client, id="other")) == ["/id"]


async def test_the_secret_is_shown_at_creation_and_rotation_only(client: httpx.AsyncClient) -> None:
    created = await put(client)
    reads = [
        await put(client),
        await put(client, maxAttempts=3),
        await client.get(PATH),
        await client.get("/v1/subscribers"),
        await client.post(PATH + "/pause"),
        await client.post(PATH + "/resume"),
    ]
    for answer in reads:
        assert answer.status_code == 200
        assert "secret" not in answer.text
    rotated = await client.post(PATH + "/rotate-secret")
    assert rotated.status_code == 200
    assert decode_secret(rotated.json()["secret"]) != decode_secret(created.json()["secret"])


async def test_a_given_secret_is_taken_at_creation_and_refused_as_a_change(client: httpx.AsyncClient) -> None:
    secret = new_secret(b"k" * 24)
    assert (await put(client, secret=secret)).json()["secret"] == secret
    assert (await put(client, secret=secret)).status_code == 200
    assert pointers(await put(client, secret=new_secret(b"j" * 24))) == ["/secret"]


async def test_twenty_puts_at_once_create_one_subscriber_with_one_secret(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(put(client) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert sum("secret" in answer.json() for answer in answers) == 1


async def test_a_repeated_request_with_its_key_gets_the_secret_again_and_rotates_once(
    api: Api, client: httpx.AsyncClient
) -> None:
    key = {"idempotency-key": "k1"}
    first, again = [await client.put(PATH, json=BODY, headers=key) for _ in range(2)]
    assert (again.status_code, again.content) == (201, first.content)
    key = {"idempotency-key": "k2"}
    first, again = [await client.post(PATH + "/rotate-secret", headers=key) for _ in range(2)]
    assert (again.status_code, again.content) == (200, first.content)
    assert (await api.rows())["audit"] == 2
    gone, again = [await client.delete(PATH, headers={"idempotency-key": "k3"}) for _ in range(2)]
    assert (gone.status_code, again.status_code, again.content) == (204, 204, b"")
    stored = await api.scene.execute("SELECT sealed_answer FROM tocsin.idempotency_keys")
    assert not any(first.json()["secret"].encode() in row.sealed_answer for row in stored)


async def test_the_list_is_newest_first_and_its_pages_meet(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await put(client, f"s{number}")
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/v1/subscribers", params=query)).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["nextCursor"]
    assert seen == ["s4", "s3", "s2", "s1", "s0"]


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "cursor=ECHO", "unknown=1", "limit=1&limit=2"])
async def test_a_list_that_cannot_be_given_is_refused(refusing: Api, query: str) -> None:
    assert pointers(await refusing.client.get(f"/v1/subscribers?{query}"))[0].startswith("/query")


async def test_pause_and_resume_show_in_the_state_with_the_reason(client: httpx.AsyncClient) -> None:
    await put(client)
    paused = await client.post(PATH + "/pause", json={"reason": " a deploy "})
    assert (paused.json()["state"], paused.json()["stateReason"]) == ("paused", "a deploy")
    assert (await client.get(PATH)).json() == paused.json()
    resumed = await client.post(PATH + "/resume", json={"reason": "done"})
    assert (resumed.json()["state"], resumed.json()["stateReason"]) == ("active", None)


async def test_a_deleted_subscriber_is_gone_and_can_be_created_again(client: httpx.AsyncClient) -> None:
    first = await put(client)
    gone = await client.delete(PATH)
    assert (gone.status_code, gone.content) == (204, b"")
    problem(await client.delete(PATH), 404, "not-found")
    problem(await client.get(PATH), 404, "not-found")
    assert (await client.get("/v1/subscribers")).json()["items"] == []
    again = await put(client)
    assert again.status_code == 201
    assert again.json()["secret"] != first.json()["secret"]


async def test_a_test_event_leads_to_its_delivery(client: httpx.AsyncClient) -> None:
    await put(client)
    answer = await client.post(PATH + "/test")
    assert answer.status_code == 202
    delivery = (await client.get(answer.headers["location"])).json()
    assert (delivery["id"], delivery["eventId"]) == (answer.json()["deliveryId"], answer.json()["eventId"])
    assert (delivery["eventType"], delivery["subject"], delivery["state"]) == ("tocsin.test", "acme", "pending")


Call = Callable[[httpx.AsyncClient, str, dict[str, str]], Awaitable[httpx.Response]]


def _post(verb: str) -> Call:
    return lambda client, path, headers: client.post(f"{path}/{verb}", headers=headers)


CALLS: dict[str, tuple[Scope, Call]] = {
    "read": (Scope.READ, lambda client, path, headers: client.get(path, headers=headers)),
    "put": (Scope.ADMIN, lambda client, path, headers: client.put(path, json=BODY, headers=headers)),
    "pause": (Scope.OPERATE, _post("pause")),
    "resume": (Scope.OPERATE, _post("resume")),
    "test": (Scope.OPERATE, _post("test")),
    "rotate": (Scope.ADMIN, _post("rotate-secret")),
    "delete": (Scope.ADMIN, lambda client, path, headers: client.delete(path, headers=headers)),
}


async def test_each_call_asks_for_its_scope_and_no_more(api: Api, client: httpx.AsyncClient) -> None:
    holders = {scope: await api.key(f"of-{scope}", scope) for scope in Scope}
    await put(client)
    for name, (needed, call) in CALLS.items():
        problem(await call(client, PATH, {"authorization": "Bearer tsk_ECHO"}), 401, "unauthenticated")
        for scope, key in holders.items():
            answer = await call(client, PATH, key)
            if not scope.includes(needed):
                problem(answer, 403, "forbidden")
            else:
                assert answer.status_code < 300, (name, scope)


async def test_the_trail_names_the_key_s_holder(api: Api, client: httpx.AsyncClient) -> None:
    await put(client)
    await client.post(PATH + "/pause", headers=await api.key("night-shift", Scope.OPERATE), json={"reason": "asleep"})
    rows = await api.scene.execute("SELECT actor, action, object, reason FROM tocsin.audit WHERE object LIKE 'sub%'")
    assert [tuple(row) for row in rows] == [
        ("bootstrap", "subscriber.created", "subscriber:acme", None),
        ("night-shift", "subscriber.paused", "subscriber:acme", "asleep"),
    ]


NO_SLUGS = ["nobody", "A", "a.b", "a%00b", "x" * 64, "%ED%A0%80", "%F0%9F%94%94"]


@pytest.mark.parametrize("slug", NO_SLUGS)
async def test_what_is_no_subscriber_is_not_found_by_any_call(refusing: Api, slug: str) -> None:
    for name, (_, call) in CALLS.items():
        if name != "put":
            problem(await call(refusing.client, f"/v1/subscribers/{slug}", {}), 404, "not-found")


@pytest.mark.parametrize("slug", NO_SLUGS[1:])
async def test_what_can_be_no_subscriber_is_not_created(refusing: Api, slug: str) -> None:
    assert pointers(await put(refusing.client, slug)) == ["/id"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"url": None}, "/url"),
    ({"url": 42}, "/url"),
    ({"url": "ftp://ECHO"}, "/url"),
    ({"url": "http://127.0.0.1/ECHO"}, "/url"),
    ({"url": "http://2130706433/ECHO"}, "/url"),
    ({"url": "https://ECHO:ECHO@203.0.114.7/"}, "/url"),
    ({"eventTypes": "shipment.*"}, "/eventTypes"),
    ({"eventTypes": []}, "/eventTypes"),
    ({"eventTypes": [42]}, "/eventTypes/0"),
    ({"eventTypes": ["ECHO ECHO"]}, "/eventTypes/0"),
    ({"tenantId": "ECHO ECHO"}, "/tenantId"),
    ({"mode": "ECHO"}, "/mode"),
    ({"mode": None}, "/mode"),
    ({"ordering": 1}, "/ordering"),
    ({"onDeadLetter": "ECHO"}, "/onDeadLetter"),
    ({"idempotent": 1}, "/idempotent"),
    ({"idempotent": "true"}, "/idempotent"),
    ({"maxConcurrency": 0}, "/maxConcurrency"),
    ({"maxConcurrency": 1.5}, "/maxConcurrency"),
    ({"maxConcurrency": "16"}, "/maxConcurrency"),
    ({"maxConcurrency": True}, "/maxConcurrency"),
    ({"maxConcurrency": 10**400}, "/maxConcurrency"),
    ({"ratePerSecond": 0}, "/ratePerSecond"),
    ({"ratePerSecond": 10**400}, "/ratePerSecond"),
    ({"timeoutSeconds": 51}, "/timeoutSeconds"),
    ({"timeoutSeconds": None}, "/timeoutSeconds"),
    ({"maxAttempts": 101}, "/maxAttempts"),
    ({"backoffBaseSeconds": 0}, "/backoffBaseSeconds"),
    ({"backoffCapSeconds": 0.5}, "/backoffCapSeconds"),
    ({"deadlineSeconds": 0}, "/deadlineSeconds"),
    ({"headers": []}, "/headers"),
    ({"headers": {"X-A": 1}}, "/headers/X-A"),
    ({"headers": {"X-A": "ECHO\r\nX-B: 2"}}, "/headers/X-A"),
    ({"headers": {"Host": "ECHO"}}, "/headers/Host"),
    ({"headers": {"EC HO": "1"}}, "/headers"),
    ({"secret": "ECHO"}, "/secret"),
    ({"secret": 42}, "/secret"),
    ({"unknown": 1}, "/unknown"),
    ({"createdAt": "2026-11-30T02:00:00Z"}, "/createdAt"),
    ({"tenantId": "a\x00"}, "/tenantId"),
]


@pytest.mark.parametrize(("change", "pointer"), WRONG, ids=lambda case: json.dumps(case)[:40])
async def test_a_field_that_cannot_be_accepted_is_named_and_not_repeated(
    refusing: Api, change: dict[str, Any], pointer: str
) -> None:
    assert pointers(await put(refusing.client, **change)) == [pointer]


@pytest.mark.parametrize("state", ["paused", "active", None, 42])
async def test_the_state_is_not_set_by_a_put_and_the_answer_says_how_it_is(refusing: Api, state: Any) -> None:
    [fault] = problem(await put(refusing.client, state=state), 422, "invalid")["errors"]
    assert fault["pointer"] == "/state"
    assert "/pause" in fault["detail"]
    assert "/resume" in fault["detail"]


async def test_the_url_cannot_be_left_out(refusing: Api) -> None:
    assert pointers(await refusing.client.put(PATH, json={})) == ["/url"]


@pytest.mark.parametrize("raw", [b"", b"ECHO", b"{", b"\xff"])
async def test_what_is_no_json_is_refused(refusing: Api, raw: bytes) -> None:
    problem(await refusing.client.put(PATH, content=raw), 400, "not-json")


async def test_a_duplicate_field_is_refused(refusing: Api) -> None:
    raw = b'{"url": "https://203.0.114.7/", "url": "https://203.0.114.8/"}'
    assert pointers(await refusing.client.put(PATH, content=raw)) == ["/url"]


async def test_a_body_over_64_kib_is_refused(refusing: Api) -> None:
    raw = json.dumps(BODY | {"headers": {"x": "v" * 65_536}}).encode()
    problem(await refusing.client.put(PATH, content=raw), 413, "too-large")


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("reason", ["", "   ", "x" * 501, "a\x00", "a\nb", 42, {}])
async def test_a_reason_that_cannot_be_kept_is_refused(refusing: Api, verb: str, reason: Any) -> None:
    assert pointers(await refusing.client.post(f"{PATH}/{verb}", json={"reason": reason})) == ["/reason"]


@pytest.mark.parametrize("grace", [-1, 604_801, "60", None, True])
async def test_a_grace_that_cannot_be_kept_is_refused(client: httpx.AsyncClient, grace: Any) -> None:
    await put(client)
    answer = await client.post(PATH + "/rotate-secret", json={"graceSeconds": grace})
    assert pointers(answer) == ["/graceSeconds"]


async def test_neither_urls_nor_secrets_are_logged(client: httpx.AsyncClient) -> None:
    with capture_logs() as lines:
        secret = (await put(client, url=URL + "/SECRETPATH?token=S3", headers={"x-key": "HEADERKEY"})).json()["secret"]
        await put(client, url="http://127.0.0.1/SECRETPATH")
        await put(client, secret="whsec_SECRETPATH")
        await client.post(PATH + "/rotate-secret")
        await client.delete(PATH)
    for hidden in ("SECRETPATH", "S3", "HEADERKEY", secret, "whsec_"):
        assert hidden not in repr(lines)
