"""Idempotency-Keys over HTTP: repeated, mixed up, at once, and after a fault of our own."""

import asyncio
from typing import Any

import pytest

from service.domain.errors import Unavailable
from service.domain.model import Scope
from service.store.database import Database
from service.web.idempotency import key_of
from tests.web.conftest import JOB, Api, called, instant, pointers, problem

EVENT = {"type": "shipment.expired", "subject": "s1", "version": 1, "data": {"n": 1}}


async def test_the_same_request_gets_the_stored_answer_byte_for_byte(api: Api) -> None:
    headers = {"idempotency-key": "k1"}
    first = await api.client.post("/v1/events", json=EVENT, headers=headers)
    second = await api.client.post("/v1/events", json=EVENT, headers={"idempotency-key": '"k1"'})
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert second.headers["location"] == first.headers["location"]
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    without = await api.client.post("/v1/events", json=EVENT)
    assert without.status_code == 200
    assert (await api.rows())["events"] == 1


async def test_a_secret_that_is_shown_once_is_shown_again_to_the_same_key_and_sealed_at_rest(api: Api) -> None:
    body = {"url": "https://billing.example/hooks", "eventTypes": ["*"]}
    headers = {"idempotency-key": "k1"}
    first = await api.client.put("/v1/subscribers/billing", json=body, headers=headers)
    second = await api.client.put("/v1/subscribers/billing", json=body, headers=headers)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json()["secret"] == first.json()["secret"]
    [row] = await api.scene.execute("SELECT sealed_answer FROM tocsin.idempotency_keys")
    assert b"whsec_" not in row.sealed_answer


async def test_another_request_under_the_key_is_refused(api: Api) -> None:
    headers = {"idempotency-key": "k1"}
    await api.client.post("/v1/events", json=EVENT, headers=headers)
    other_body = await api.client.post("/v1/events", json=EVENT | {"version": 2}, headers=headers)
    problem(other_body, 422, "idempotency-mismatch")
    problem(await api.client.post(f"/v1/jobs/{JOB}/pause", headers=headers), 422, "idempotency-mismatch")
    assert (await api.rows())["events"] == 1


async def test_two_callers_may_use_the_same_key(api: Api) -> None:
    operator = await api.key("ada", Scope.OPERATE)
    headers = {"idempotency-key": "k1"}
    await api.client.post("/v1/events", json=EVENT, headers=headers)
    answer = await api.client.post("/v1/events", json=EVENT | {"version": 2}, headers=headers | operator)
    assert answer.status_code == 201


async def test_a_refusal_is_an_answer_that_is_kept_too(api: Api) -> None:
    headers = {"idempotency-key": "k1"}
    run = {"runId": "r1", "cutoff": instant(-60)}
    await api.client.post(f"/v1/jobs/{JOB}/runs", json=run)
    other = run | {"cutoff": instant(-120)}
    first = await api.client.post(f"/v1/jobs/{JOB}/runs", json=other, headers=headers)
    second = await api.client.post(f"/v1/jobs/{JOB}/runs", json=other, headers=headers)
    problem(first, 409, "run-conflict")
    assert (second.content, second.status_code) == (first.content, 409)
    assert second.headers["content-type"] == "application/problem+json"
    assert second.headers["idempotency-replayed"] == "true"


async def test_what_cannot_be_accepted_takes_no_key(api: Api) -> None:
    headers = {"idempotency-key": "k1"}
    problem(await api.client.post("/v1/events", content=b"{", headers=headers), 400, "not-json")
    for faulty in ("1", -1):
        answer = await api.client.post("/v1/events", json=EVENT | {"version": faulty}, headers=headers)
        assert pointers(answer) == ["/version"]
    assert (await api.client.post("/v1/events", json=EVENT, headers=headers)).status_code == 201


async def test_many_at_once_do_the_work_once(api: Api) -> None:
    headers = {"idempotency-key": "k1"}
    answers = await asyncio.gather(
        *(api.client.post("/v1/events", json=EVENT, headers=headers) for _ in range(8)),
    )
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {201, 409}
    assert 201 in statuses
    for answer in answers:
        if answer.status_code == 409:
            problem(answer, 409, "idempotency-in-flight")
            assert answer.headers["retry-after"] == "1"
    fresh = [a for a in answers if a.status_code == 201 and "idempotency-replayed" not in a.headers]
    assert len(fresh) == 1


async def test_a_request_whose_process_died_is_taken_over_by_its_repetition(api: Api) -> None:
    headers = {"idempotency-key": "k1"}
    await api.client.post("/v1/events", json=EVENT, headers=headers)
    undone = "UPDATE tocsin.idempotency_keys SET status = NULL, sealed_answer = NULL, created_at = now()"
    await api.scene.execute(undone)
    problem(await api.client.post("/v1/events", json=EVENT, headers=headers), 409, "idempotency-in-flight")
    await api.scene.execute(undone + " - interval '61 seconds'")
    assert (await api.client.post("/v1/events", json=EVENT, headers=headers)).status_code == 200


@pytest.mark.parametrize(("fault", "status"), [(Unavailable(), 503), (RuntimeError("ECHO"), 500)], ids=["away", "bug"])
async def test_after_a_fault_of_our_own_the_key_is_free(
    api: Api, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise fault

    headers = {"idempotency-key": "k1"}
    with monkeypatch.context() as patched:
        patched.setattr("service.web.events.publish", fails)
        failed = await api.client.post("/v1/events", json=EVENT, headers=headers)
    assert failed.status_code == status
    assert "ECHO" not in failed.text
    assert (await api.rows())["idempotency_keys"] == 0
    assert (await api.client.post("/v1/events", json=EVENT, headers=headers)).status_code == 201


async def test_an_answer_that_cannot_be_kept_is_given_all_the_same(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable

    headers = {"idempotency-key": "k1"}
    monkeypatch.setattr("service.web.idempotency.idempotency.finish", away)
    assert (await api.client.post("/v1/events", json=EVENT, headers=headers)).status_code == 201


@pytest.mark.parametrize("key", ["", " ", '""', "a" * 256, "a b", '"a', "é", '"a b"', '"' + "a" * 256 + '"', "a\tb"])
async def test_a_key_that_is_none_is_refused(refusing: Api, key: str) -> None:
    answer = await refusing.client.post("/v1/events", json=EVENT, headers=[(b"idempotency-key", key.encode("latin-1"))])
    assert pointers(answer) == ["/header/Idempotency-Key"]


def test_a_quoted_key_is_the_bare_one() -> None:
    assert key_of(['"abc"']) == key_of(["abc"]) == key_of([" abc "]) == "abc"
    assert key_of([r'"a\"b\\c"']) == r'a"b\c'
    assert key_of(["a" * 255]) == key_of(['"' + "a" * 255 + '"'])
    assert key_of([]) is None


async def test_two_keys_are_refused_even_if_they_agree(refusing: Api) -> None:
    for second in ("k2", "k1"):
        headers = [("idempotency-key", "k1"), ("Idempotency-Key", second)]
        assert pointers(await refusing.client.post("/v1/events", json=EVENT, headers=headers)) == [
            "/header/Idempotency-Key"
        ]


async def test_an_answer_whose_key_is_gone_is_a_conflict_and_the_work_is_not_done_again(
    api: Api, database: Database
) -> None:
    headers = {"idempotency-key": "k1"}
    body = {"url": "https://billing.example/hooks", "eventTypes": ["*"]}
    assert (await api.client.put("/v1/subscribers/billing", json=body, headers=headers)).status_code == 201
    async with called(database) as later:  # whose vault has another key
        again = await later.client.put("/v1/subscribers/billing", json=body, headers=headers)
        assert "TOCSIN_ENCRYPTION_KEYS" in problem(again, 409, "conflict")["detail"]
        assert (await later.rows())["subscribers"] == 1


async def test_every_changing_operation_takes_a_key(refusing: Api) -> None:
    document = refusing.app.openapi()
    changing = [
        operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method != "get" and not path.endswith("/ticks")
    ]
    assert len(changing) >= 10
    for operation in changing:
        assert "Idempotency-Key" in [each["name"] for each in operation["parameters"]]
