"""API keys at the door: who is let through, to what, and how soon a change counts."""

import time
from datetime import timedelta

import httpx
import pytest

from service.domain.model import Scope
from service.flow import control
from service.web import keyring
from service.web.app import openapi_document
from tests.polling import eventually
from tests.web.conftest import BOOTSTRAP_KEY, JOB, Api, problem

READS = ["/v1/jobs", f"/v1/jobs/{JOB}", "/v1/runs", "/v1/events", "/v1/deliveries", "/v1/subscribers"]

NO_KEYS = {
    "none": None,
    "empty": "",
    "no scheme": BOOTSTRAP_KEY,
    "another scheme": f"Basic {BOOTSTRAP_KEY}",
    "no key": "Bearer ",
    "a wrong key": "Bearer ECHO",
    "a longer key": f"Bearer {BOOTSTRAP_KEY}x",
    "a shorter key": f"Bearer {BOOTSTRAP_KEY[:-1]}",
    "a huge key": "Bearer " + "x" * 5000,
    "not ASCII": "Bearer é",
    "a hash": "Bearer " + "0" * 64,
}


@pytest.mark.parametrize("header", NO_KEYS.values(), ids=NO_KEYS)
async def test_without_a_good_key_nothing_is_read(refusing: Api, header: str | None) -> None:
    async with httpx.AsyncClient(transport=refusing.client._transport, base_url="http://tocsin") as stranger:
        headers = [] if header is None else [(b"authorization", header.encode("latin-1"))]
        answer = await stranger.get("/v1/runs?limit=ECHO", headers=headers)
    problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_every_operation_but_ticks_health_and_metrics_asks_for_a_key(refusing: Api) -> None:
    open_paths = {"/v1/jobs/{job}/ticks", "/livez", "/readyz", "/metrics"}
    for path, operations in openapi_document()["paths"].items():
        for method, operation in operations.items():
            assert (operation["security"] == []) is (path in open_paths), path
            for [scope] in (role.values() for role in operation["security"]):
                assert operation["description"].endswith(f"Needs an API key of scope `{scope[0]}`.")
                assert (scope == ["read"]) is (method == "get")
            if path not in open_paths:
                url = path.replace("{job}", JOB).replace("{id}", "x")
                answer = await refusing.client.request(method, url, headers={"authorization": "Bearer ECHO"})
                problem(answer, 401, "unauthenticated")


async def test_a_scope_includes_the_smaller_ones(api: Api) -> None:
    reader, operator, admin = [await api.key(scope.value, scope) for scope in Scope]
    for headers in (reader, operator, admin):
        for path in READS:
            assert (await api.client.get(path, headers=headers)).status_code == 200
    for headers, status in ((reader, 403), (operator, 200), (admin, 200)):
        assert (await api.client.post(f"/v1/jobs/{JOB}/pause", headers=headers)).status_code == status
    for headers, status in ((reader, 403), (operator, 403), (admin, 404)):
        assert (await api.client.delete("/v1/subscribers/x", headers=headers)).status_code == status


async def test_a_scope_that_is_too_small_is_refused_before_the_body_is_read(api: Api) -> None:
    reader = await api.key("reader", Scope.READ)
    answer = await api.client.post("/v1/events", content=b"{ECHO", headers=reader)
    refused = problem(answer, 403, "forbidden")
    assert refused["detail"] == "This needs the scope `operate`; this key has `read`."


async def test_the_name_of_the_key_stands_in_the_audit_trail(api: Api) -> None:
    operator = await api.key("ada", Scope.OPERATE)
    await api.client.post(f"/v1/jobs/{JOB}/pause", headers=operator, json={"reason": "because"})
    await api.client.post(f"/v1/jobs/{JOB}/resume")
    lines = await api.scene.execute("SELECT actor, action, reason FROM tocsin.audit ORDER BY id DESC LIMIT 2")
    assert [tuple(line) for line in lines] == [("bootstrap", "job.resumed", None), ("ada", "job.paused", "because")]


async def test_a_new_key_works_at_once_and_a_revoked_one_ends_after_a_moment(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = await api.key("eve", Scope.READ)
    assert (await api.client.get("/v1/runs", headers=header)).status_code == 200
    await control.revoke_key(api.house.db, "eve", actor="test")
    later = time.monotonic() + keyring.REMEMBER_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    problem(await api.client.get("/v1/runs", headers=header), 401, "unauthenticated")


async def test_a_key_ends_when_it_expires_also_where_it_is_remembered(api: Api) -> None:
    moment = timedelta(seconds=0.3)
    made = await control.create_key(api.house.db, name="brief", scope=Scope.READ, actor="test", expires_in=moment)
    header = {"authorization": f"Bearer {made.key}"}
    assert (await api.client.get("/v1/runs", headers=header)).status_code == 200

    async def refused() -> bool:
        return (await api.client.get("/v1/runs", headers=header)).status_code == 401

    assert await eventually(refused, seconds=keyring.REMEMBER_SECONDS - 1)
    again = await control.create_key(api.house.db, name="brief", scope=Scope.READ, actor="test")
    assert again.record.expires_at is None


async def test_the_use_of_a_key_is_noted_beside_the_request(api: Api) -> None:
    header = await api.key("ada", Scope.READ)
    assert (await api.client.get("/v1/runs", headers=header)).status_code == 200

    async def noted() -> bool:
        [row] = await api.scene.execute("SELECT last_used_at FROM tocsin.api_keys")
        return row.last_used_at is not None

    assert await eventually(noted)


async def test_a_database_that_takes_no_changes_refuses_no_reader(api: Api) -> None:
    header = await api.key("ada", Scope.READ)
    name = api.house.db.engine.url.database
    await api.scene.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await api.house.db.engine.dispose()
    assert (await api.client.get("/v1/runs", headers=header)).status_code == 200


async def test_the_ring_of_remembered_keys_stays_small(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "_MAX_REMEMBERED", 2)
    for number in range(5):
        header = await api.key(f"key-{number}", Scope.READ)
        assert (await api.client.get("/v1/runs", headers=header)).status_code == 200
    assert len(api.app.state.web.keyring._remembered) <= 2
