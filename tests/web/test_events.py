"""Events over HTTP: published once, immutable, their bytes kept; odd input is refused and leaves nothing behind."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from service.domain.jsontext import parse_object
from service.domain.model import Scope
from tests.web.conftest import Api, instant, problem

EVENT = {"type": "shipment.expired", "subject": "s1", "version": 1, "data": {"n": 1}}


def _raw(data: str) -> bytes:
    return b'{"type":"shipment.expired","subject":"s1","version":1,"data":' + data.encode() + b"}"


async def test_an_event_is_created_once_and_known_afterwards(api: Api) -> None:
    first = await api.client.post("/v1/events", json=EVENT)
    second = await api.client.post("/v1/events", json=EVENT)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    assert first.headers["location"] == second.headers["location"] == f"/v1/events/{first.json()['id']}"
    read = await api.client.get(first.headers["location"])
    assert read.json() == first.json()
    problem(await api.client.post("/v1/events", json=EVENT | {"data": {"n": 2}}), 409, "event-conflict")
    problem(await api.client.post("/v1/events", json=EVENT | {"dueAt": instant()}), 409, "event-conflict")
    assert (await api.rows())["events"] == 1


async def test_many_at_once_are_one_event(api: Api) -> None:
    answers = await asyncio.gather(*(api.client.post("/v1/events", json=EVENT) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


ODD_DATA = [
    '{"b":1,"a":1.0,"n":12345678901234567890123, "e":1E2}',
    '{"a":"\\u00e9é","z":-0.0}',
    "null",
    "[1 , 2]",
    '"text"',
    "0.10",
    '{"x":"\\ud83d\\ude00</script>"}',
]


@pytest.mark.parametrize("data", ODD_DATA)
async def test_the_data_is_kept_byte_for_byte(api: Api, data: str) -> None:
    answer = await api.client.post("/v1/events", content=_raw(f" {data} "))
    assert answer.status_code == 201
    read = await api.client.get(answer.headers["location"])
    _, members = parse_object(read.content)
    body = members["payload"]
    assert body.endswith(f'"data":{data}}}')
    [stored] = await api.scene.execute("SELECT body FROM tocsin.events")
    assert body.encode() == stored.body
    assert read.json()["payloadSha256"] == hashlib.sha256(stored.body).hexdigest()


REFUSED: dict[str, tuple[bytes, list[str]]] = {
    "half an emoji": (_raw('{"name":"\\ud83d"}'), ["/data/name"]),
    "surrogates the wrong way round": (_raw('"\\udc00\\ud800"'), ["/data"]),
    "NUL": (_raw('{"ECHO":{"a":"\\u0000"}}'), ["/data/ECHO/a"]),
    "a name twice": (_raw('{"a":1.0,"a":2}'), ["/data/a"]),
    "a field twice": (b'{"type":"a","type":"b","subject":"s","version":1,"data":1}', ["/type"]),
    "NaN": (_raw("NaN"), ["/data"]),
    "1e400": (_raw("[1e400]"), ["/data/0"]),
    "nothing": (b"{}", ["/type", "/subject", "/version", "/data"]),
    "null fields": (
        b'{"type":null,"subject":null,"version":null,"data":null}',
        ["/type", "/subject", "/version"],
    ),
    "wrong types": (
        b'{"type":1,"subject":["ECHO"],"version":"1","data":1,"tenantId":1,"dueAt":1}',
        ["/type", "/subject", "/version", "/tenantId", "/dueAt"],
    ),
    "a version of 1.5": (b'{"type":"a","subject":"s","version":1.5,"data":1}', ["/version"]),
    "a version of 1.0": (b'{"type":"a","subject":"s","version":1.0,"data":1}', ["/version"]),
    "a version that is true": (b'{"type":"a","subject":"s","version":true,"data":1}', ["/version"]),
    "a version below 0": (b'{"type":"a","subject":"s","version":-1,"data":1}', ["/version"]),
    "a version beyond 64 bits": (b'{"type":"a","subject":"s","version":9223372036854775808,"data":1}', ["/version"]),
    "a huge version": (b'{"type":"a","subject":"s","version":' + b"9" * 4000 + b',"data":1}', ["/version"]),
    "an unknown field": (b'{"type":"a","subject":"s","version":1,"data":1,"extra":"ECHO"}', ["/extra"]),
    "a snake": (b'{"type":"a","subject":"s","version":1,"data":1,"due_at":null}', ["/due_at"]),
    "an odd type": (b'{"type":"ECHO..b","subject":"s","version":1,"data":1}', ["/type"]),
    "an odd tenant": (b'{"type":"a","subject":"s","version":1,"data":1,"tenantId":"<ECHO>"}', ["/tenantId"]),
    "an empty subject": (b'{"type":"a","subject":"","version":1,"data":1}', ["/subject"]),
    "a subject with a newline": (b'{"type":"a","subject":"ECHO\\n","version":1,"data":1}', ["/subject"]),
    "a subject that is too long": (b'{"type":"a","subject":"' + b"s" * 256 + b'","version":1,"data":1}', ["/subject"]),
    "a due time without offset": (
        b'{"type":"a","subject":"s","version":1,"data":1,"dueAt":"2026-11-30T02:00:00"}',
        ["/dueAt"],
    ),
    "a list": (b"[]", [""]),
}


@pytest.mark.parametrize(("raw", "places"), REFUSED.values(), ids=REFUSED)
async def test_an_event_that_cannot_be_kept_is_refused(refusing: Api, raw: bytes, places: list[str]) -> None:
    answer = await refusing.client.post("/v1/events", content=raw)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == places
    assert "ECHO" not in answer.text.replace("/data/ECHO", "")


async def test_what_is_no_json_is_refused(refusing: Api) -> None:
    for raw in (b"", b"{", b"\xff", b"[" * 200_000, b"type=a"):
        problem(await refusing.client.post("/v1/events", content=raw), 400, "not-json")


async def test_data_of_256_kib_is_taken_and_more_is_not(api: Api) -> None:
    fits = json.dumps("x" * (256 * 1024 - 2))
    assert (await api.client.post("/v1/events", content=_raw(fits))).status_code == 201
    more: dict[str, Any] = EVENT | {"version": 2, "data": "x" * (256 * 1024 - 1)}
    problem(await api.client.post("/v1/events", json=more), 413, "too-large")
    assert (await api.rows())["events"] == 1


async def test_a_due_event_waits_and_says_so(api: Api) -> None:
    due = instant(3600)
    answer = await api.client.post("/v1/events", json=EVENT | {"dueAt": due.replace("Z", "+00:00")})
    assert answer.json()["dueAt"] == due
    assert answer.json()["fannedOutAt"] is None


async def test_an_infinite_due_time_in_the_database_breaks_no_list(api: Api) -> None:
    for version, due in ((1, "infinity"), (2, "-infinity")):
        made = await api.client.post("/v1/events", json=EVENT | {"version": version})
        assert made.status_code == 201
        await api.scene.execute(f"UPDATE tocsin.events SET due_at = '{due}' WHERE version = {version}")
    listed = (await api.client.get("/v1/events")).json()["items"]
    assert [item["dueAt"] for item in listed] == ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]
    for event in listed:
        problem(
            await api.client.post("/v1/events", json=EVENT | {"version": 3, "dueAt": event["dueAt"]}), 422, "invalid"
        )
    assert (await api.rows())["events"] == 2


async def test_a_purged_event_keeps_its_hash_and_its_identity(api: Api) -> None:
    made = (await api.client.post("/v1/events", json=EVENT)).json()
    await api.scene.execute("UPDATE tocsin.events SET body = NULL, purged_at = now()")
    read = (await api.client.get(f"/v1/events/{made['id']}")).json()
    assert (made["purgedAt"], read["payload"]) == (None, None)
    assert read["purgedAt"] is not None
    assert read["payloadSha256"] == made["payloadSha256"]
    again = await api.client.post("/v1/events", json=EVENT)
    assert (again.status_code, again.json()) == (200, read)
    problem(await api.client.post("/v1/events", json=EVENT | {"data": {"n": 2}}), 409, "event-conflict")


async def test_an_event_names_its_publisher_and_does_so_for_ever(api: Api) -> None:
    ada, bob = await api.key("ada", Scope.OPERATE), await api.key("bob", Scope.OPERATE)
    made = await api.client.post("/v1/events", content=_raw("1"), headers=ada)
    again = await api.client.post("/v1/events", content=_raw("1"), headers=bob)
    assert (made.status_code, again.status_code) == (201, 200)
    assert [each.json()["publishedBy"] for each in (made, again)] == ["ada", "ada"]
