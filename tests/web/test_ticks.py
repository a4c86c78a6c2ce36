"""Ticks at the HTTP door: who may tick, what is refused and in which order, and that a repeated tick is one run."""

import asyncio
import hmac
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.domain.signing import tick_signature
from tests.web.conftest import JOB, OLD_SECRET, OTHER_SECRET, SECRET, Api, instant, pointers, problem, tick

PATH = f"/v1/jobs/{JOB}/ticks"


async def post(client: httpx.AsyncClient, body: Any, path: str = PATH, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await client.post(path, content=content, headers={"authorization": ""} | headers)


async def test_a_signed_tick_claims_its_run(api: Api, client: httpx.AsyncClient) -> None:
    body = tick("nightly-1")
    answer = await post(client, body)
    assert answer.status_code == 202
    told = answer.json()
    assert (told["accepted"], told["duplicate"]) == (True, False)
    run = told["run"]
    assert (run["job"], run["runId"], run["cutoff"]) == (JOB, "nightly-1", body["cutoffIso"])
    assert (run["source"], run["state"], run["settled"]) == ("hmac", "claimed", False)
    assert answer.headers["location"] == f"/v1/runs/{run['id']}"
    again = await client.get(answer.headers["location"])
    assert again.json()["id"] == run["id"]
    assert (await api.rows())["runs"] == 1


async def test_the_same_tick_again_gets_the_same_run(api: Api, client: httpx.AsyncClient) -> None:
    body = tick()
    first, second = await post(client, body), await post(client, body)
    assert (first.status_code, second.status_code) == (202, 200)
    assert second.json()["duplicate"] is True
    assert second.json()["run"]["id"] == first.json()["run"]["id"]
    assert second.headers["location"] == first.headers["location"]
    assert (await api.rows())["runs"] == 1


async def test_fifty_identical_ticks_at_once_are_one_run(api: Api, client: httpx.AsyncClient) -> None:
    body = tick()
    answers = await asyncio.gather(*(post(client, body) for _ in range(50)))
    assert sorted({answer.status_code for answer in answers}) == [200, 202]
    assert [answer.status_code for answer in answers].count(202) == 1
    assert len({answer.json()["run"]["id"] for answer in answers}) == 1
    assert (await api.rows())["runs"] == 1


async def test_the_same_instant_in_another_offset_is_the_same_run(client: httpx.AsyncClient) -> None:
    cutoff = instant()
    first = await post(client, tick("r1", cutoff))
    second = await post(client, tick("r1", cutoff.replace("Z", "+00:00")))
    third = await post(client, tick("r1", cutoff.replace("Z", ".000000999Z")))
    assert [answer.status_code for answer in (first, second, third)] == [202, 200, 200]


async def test_another_cutoff_for_a_run_id_is_a_conflict_that_names_the_stored_one(client: httpx.AsyncClient) -> None:
    cutoff = instant(-60)
    await post(client, tick("r1", cutoff))
    answer = await post(client, tick("r1", instant(-120)))
    assert cutoff in problem(answer, 409, "run-conflict")["detail"]


async def test_of_many_cutoffs_for_a_run_id_at_once_one_is_taken_and_the_others_conflict(
    api: Api, client: httpx.AsyncClient
) -> None:
    bodies = [tick("r1", instant(-seconds)) for seconds in range(6)]
    answers = await asyncio.gather(*(post(client, body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 5]
    assert (await api.rows())["runs"] == 1


@pytest.mark.parametrize(
    "content_type", [None, "application/octet-stream", "text/plain", "application/json; charset=x", "a"]
)
async def test_any_content_type_will_do(client: httpx.AsyncClient, content_type: str | None) -> None:
    headers = {"content-type": content_type} if content_type else {}
    answer = await client.post(PATH, content=json.dumps(tick()).encode(), headers=headers)
    assert answer.status_code == 202


async def test_a_slash_at_the_end_changes_nothing(client: httpx.AsyncClient) -> None:
    body = tick()
    assert (await post(client, body, PATH + "/")).status_code == 202
    assert (await post(client, body)).status_code == 200


async def test_a_rotated_secret_still_signs_and_no_api_key_is_asked_for(client: httpx.AsyncClient) -> None:
    body = tick(secret=OLD_SECRET)
    answer = await post(client, body, authorization="Bearer nobody")
    assert answer.status_code == 202


async def test_the_strings_are_signed_and_not_their_spelling(client: httpx.AsyncClient) -> None:
    cutoff = instant()
    signature = tick_signature(SECRET, "é", cutoff)
    tail = f'"cutoffIso":"{cutoff}","signature":"{signature.upper()}"'
    first = await post(client, f'{{"runId": "é",  {tail}}}'.encode())
    second = await post(client, f'{{"runId": "\\u00e9",{tail}}}'.encode())
    assert (first.status_code, second.status_code) == (202, 200)


def _with(**changes: Any) -> Callable[[], dict[str, Any]]:
    return lambda: tick() | changes


def _without(name: str) -> Callable[[], dict[str, Any]]:
    return lambda: {key: value for key, value in tick().items() if key != name}


def _signed(text: str, secret: bytes = SECRET) -> Callable[[], dict[str, Any]]:
    return lambda: {"runId": "r1", "cutoffIso": _NOW, "signature": hmac.digest(secret, text.encode(), "sha256").hex()}


_NOW = instant()

UNSIGNED: dict[str, Callable[[], dict[str, Any]]] = {
    "no signature": _without("signature"),
    "null": _with(signature=None),
    "a number": _with(signature=42),
    "a list": _with(signature=["a"]),
    "an object": _with(signature={}),
    "empty": _with(signature=""),
    "not hex": _with(signature="z" * 64),
    "too short": _with(signature="ab" * 31),
    "too long": _with(signature="ab" * 33),
    "wrong": _with(signature="ab" * 32),
    "with openssl's prefix": lambda: tick() | {"signature": "SHA2-256(stdin)= " + tick()["signature"]},
    "with the older prefix": lambda: tick() | {"signature": "(stdin)= " + tick()["signature"]},
    "with a newline behind it": lambda: tick() | {"signature": tick()["signature"] + "\n"},
    "not ASCII": _with(signature="é" * 64),
    "arabic digits": _with(signature="٥" * 64),
    "huge": _with(signature="a" * 9000),
    "over a message with a newline": _signed(f"r1.{_NOW}\n"),
    "by a secret with a newline": _signed(f"r1.{_NOW}", SECRET + b"\n"),
    "by the secret of another job": lambda: tick(secret=OTHER_SECRET),
    "by an empty secret": lambda: tick(secret=b""),
    "over another run id": lambda: tick("r2") | {"runId": "r1"},
    "over another cutoff": lambda: tick("r1", instant(-60)) | {"cutoffIso": instant()},
    "over an odd run id": lambda: tick("r1") | {"runId": "r\n"},
    "over an odd cutoff": lambda: tick("r1") | {"cutoffIso": "yesterday"},
    "with a field that is unknown": _with(signature="ab" * 32, extra=1),
}


@pytest.mark.parametrize("body", UNSIGNED.values(), ids=UNSIGNED)
@pytest.mark.parametrize("job", [JOB, "nope"])
async def test_what_is_not_signed_by_the_job_is_refused_alike(
    refusing: Api, job: str, body: Callable[[], dict[str, Any]]
) -> None:
    answer = await post(refusing.client, body(), f"/v1/jobs/{job}/ticks")
    problem(answer, 401, "tick-refused")
    wrong = await post(refusing.client, tick() | {"signature": "0" * 64})
    assert (answer.content, answer.headers) == (wrong.content, wrong.headers)


@pytest.mark.parametrize("job", ["nope", "no%20pe", "a%00b", "%ED%A0%80", "%FF", "x" * 3000, "é", "reports"])
async def test_an_unknown_job_is_refused_like_a_wrong_signature(refusing: Api, job: str) -> None:
    answer = await post(refusing.client, tick(), f"/v1/jobs/{job}/ticks")
    problem(answer, 401, "tick-refused")


NO_JSON = [b"", b"{", b"\xff\xfe", b"runId=r1", b'{"runId":"r1"', b"9" * 5000, b'\xef\xbb\xbf{"a":1}']

NO_TICK: dict[str, tuple[bytes, list[str]]] = {
    "no object": (b"[]", [""]),
    "a number": (b"1", [""]),
    "no fields": (b"{}", ["/runId", "/cutoffIso"]),
    "no run id": (b'{"cutoffIso":"x","signature":"y"}', ["/runId"]),
    "run id is a number": (b'{"runId":42,"cutoffIso":"x"}', ["/runId"]),
    "run id is null": (b'{"runId":null,"cutoffIso":"x"}', ["/runId"]),
    "cutoff is an epoch": (b'{"runId":"r1","cutoffIso":1743294600}', ["/cutoffIso"]),
    "run id twice": (b'{"runId":"r1","runId":"r2","cutoffIso":"x"}', ["/runId"]),
    "NUL in the run id": (b'{"runId":"a\\u0000b","cutoffIso":"x"}', ["/runId"]),
    "half an emoji": (b'{"runId":"\\ud83d","cutoffIso":"x"}', ["/runId"]),
    "NaN": (b'{"runId":"r1","cutoffIso":"x","a":NaN}', ["/a"]),
    "1e400": (b'{"runId":"r1","cutoffIso":"x","a":[1e400]}', ["/a/0"]),
    "nested too deep": (b'{"runId":"r1","cutoffIso":"x","a":{"b":[{}]}}', [""]),
    "nested without end": (b"[" * 16_000, [""]),
}


@pytest.mark.parametrize("raw", NO_JSON)
@pytest.mark.parametrize("job", [JOB, "nope"])
async def test_what_is_no_json_is_refused_before_the_signature(refusing: Api, raw: bytes, job: str) -> None:
    problem(await post(refusing.client, raw, f"/v1/jobs/{job}/ticks"), 400, "not-json")


@pytest.mark.parametrize(("raw", "places"), NO_TICK.values(), ids=NO_TICK)
@pytest.mark.parametrize("job", [JOB, "nope"])
async def test_json_that_is_no_tick_is_refused_before_the_signature(
    refusing: Api, raw: bytes, places: list[str], job: str
) -> None:
    assert pointers(await post(refusing.client, raw, f"/v1/jobs/{job}/ticks")) == places


BAD_CUTOFFS = [
    "2025-10-26T02:30:00",
    "2025-03-30T02:30:00 Europe/Berlin",
    "2025-03-30 02:30",
    "1743294600",
    "2025-03-30",
    "2025-W13-7",
    "20250330T023000Z",
    "2025-03-30x02:30:00Z",
    "2025-03-30T02:30:00-0800",
    "2025-03-30T02:30:00+00:00:01",
    "2025-03-30T24:00:00Z",
    "2025-03-30T23:59:60Z",
    "2025-03-30T02:30:00,5Z",
    "b.2025-03-30T02:30:00Z",
    "",
]
BAD_RUN_IDS = ["", "ECHO\nb", "\r\nX: y", "a\x7f", "a\x85b", "é" * 101, "a" * 201]


@pytest.mark.parametrize("cutoff", BAD_CUTOFFS)
async def test_a_signed_cutoff_that_is_no_instant_is_refused(refusing: Api, cutoff: str) -> None:
    answer = await post(refusing.client, tick("ECHO-r1", cutoff))
    assert pointers(answer) == ["/cutoffIso"]
    assert not cutoff or cutoff not in answer.text


@pytest.mark.parametrize("run_id", BAD_RUN_IDS)
async def test_a_signed_run_id_that_cannot_be_kept_is_refused(refusing: Api, run_id: str) -> None:
    assert pointers(await post(refusing.client, tick(run_id))) == ["/runId"]


@pytest.mark.parametrize(("name", "pointer"), [("extra", "/extra"), ("<script>ECHO", ""), ("run_id", "/run_id")])
async def test_a_signed_tick_with_an_unknown_field_is_refused(refusing: Api, name: str, pointer: str) -> None:
    assert pointers(await post(refusing.client, tick() | {name: "ECHO"})) == [pointer]


@pytest.mark.parametrize("seconds", [61 + 30, 4 * 60, 30 * 365 * 86_400, -604_800 - 60, -20 * 365 * 86_400])
async def test_a_cutoff_out_of_range_is_refused(refusing: Api, seconds: int) -> None:
    problem(await post(refusing.client, tick("r1", instant(seconds))), 422, "cutoff-out-of-range")


ODD_RUN_IDS = [
    "2025/03/30 10:00",
    "a%2Fb",
    "../admin",
    "\u00e9",
    "e\u0301",
    "\u200bhourly",
    "HOURLY",
    "hourly",
    '"><script>',
    "   ",
    "a" * 200,
    "é" * 100,
    "😀",
]


async def test_odd_but_legal_run_ids_are_kept_byte_for_byte_and_can_be_opened(client: httpx.AsyncClient) -> None:
    for run_id in ODD_RUN_IDS:
        answer = await post(client, tick(run_id))
        assert answer.status_code == 202, run_id
        opened = await client.get(answer.headers["location"])
        assert opened.json()["runId"] == run_id
    listed = (await client.get("/v1/runs")).json()["items"]
    assert [run["runId"] for run in listed] == ODD_RUN_IDS[::-1]


async def test_the_hour_that_comes_twice_is_two_runs_an_hour_apart(client: httpx.AsyncClient) -> None:
    stamp = instant(-3 * 3600)[:-1]
    first = (await post(client, tick("a", stamp + "+02:00"))).json()["run"]["cutoff"]
    second = (await post(client, tick("b", stamp + "+01:00"))).json()["run"]["cutoff"]
    assert first != second


async def test_a_tick_of_a_paused_job_is_accepted_and_held(client: httpx.AsyncClient) -> None:
    await client.post(f"/v1/jobs/{JOB}/pause", json={"reason": "moving house"})
    answer = await post(client, tick())
    assert (answer.status_code, answer.json()["run"]["state"]) == (202, "held")
    assert (await client.get(f"/v1/jobs/{JOB}")).json()["pausedReason"] == "moving house"
    resumed = await client.post(f"/v1/jobs/{JOB}/resume", json={})
    assert (resumed.json()["paused"], resumed.json()["lastRun"]["state"]) == (False, "claimed")
