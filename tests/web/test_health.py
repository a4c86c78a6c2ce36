"""Probes: alive without the database, ready only with it, and not ready first when stopping."""

import asyncio
from typing import Any

import pytest

from service.store.database import Database
from service.web import health, reading
from service.web.state import state_of
from tests.web.conftest import Api, called, problem, tick


async def test_a_process_with_its_database_is_ready(api: Api) -> None:
    for path in ("/livez", "/readyz"):
        answer = await api.client.get(path, headers={"authorization": ""})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert (await api.client.head(path)).status_code == 200


async def test_a_process_that_is_being_stopped_lives_but_is_not_ready(api: Api) -> None:
    state_of(api.app).draining = True
    answer = await api.client.get("/readyz")
    problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "2"
    assert (await api.client.get("/livez")).status_code == 200
    assert (await api.client.get("/v1/runs")).status_code == 200


async def test_a_process_without_its_database_lives_but_refuses_for_now() -> None:
    away = Database("postgresql+asyncpg://nobody:ECHO@127.0.0.1:1/nowhere")
    async with called(away) as api:
        assert (await api.client.get("/livez")).status_code == 200
        for answer in (
            await api.client.get("/readyz"),
            await api.client.get("/v1/runs"),
            await api.client.post("/v1/jobs/shipments.expire/ticks", json=tick()),
            await api.client.post("/v1/events", json={"type": "a", "subject": "s", "version": 1, "data": 1}),
            await api.client.get("/v1/runs", headers={"authorization": "Bearer some-stored-key"}),
        ):
            problem(answer, 503, "unavailable")
            assert answer.headers["retry-after"] == "2"
    await away.close()


async def test_another_schema_is_not_ready(api: Api) -> None:
    await api.scene.execute("UPDATE tocsin.alembic_version SET version_num = 'another'")
    assert "tocsin migrate" in problem(await api.client.get("/readyz"), 503, "unavailable")["detail"]
    await api.scene.execute("DROP TABLE tocsin.alembic_version")
    assert "tocsin migrate" in problem(await api.client.get("/readyz"), 503, "unavailable")["detail"]


async def test_a_database_that_hangs_is_not_waited_for_and_asked_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, asked = asyncio.Event(), []

    async def hangs(*_: Any) -> str:
        asked.append(1)
        await goes_on.wait()
        return health._needed_revision()

    monkeypatch.setattr("service.web.health.views.schema_revision", hangs)
    monkeypatch.setattr(health, "READY_SECONDS", 0.05)
    for _ in range(3):
        problem(await api.client.get("/readyz"), 503, "unavailable")
    assert asked == [1]
    goes_on.set()
    monkeypatch.setattr(health, "READY_SECONDS", 5.0)
    assert (await api.client.get("/readyz")).status_code == 200


async def test_a_question_that_takes_too_long_is_given_up_and_its_connection_is_good_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleeps(tx: Any, **_: Any) -> None:
        await tx.conn.exec_driver_sql("SELECT pg_sleep(30)")

    monkeypatch.setattr(reading, "READ_SECONDS", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr("service.web.runs.views.runs", sleeps)
        problem(await api.client.get("/v1/runs"), 503, "unavailable")
    assert (await api.client.get("/v1/runs")).status_code == 200
