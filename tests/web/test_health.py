"""Probes: alive without the database, ready only with it, and not ready first when stopping."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine

from service.store.database import Database
from service.web import health
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
    async def sleeps(tx: Any, *_: Any, **__: Any) -> None:
        await tx.conn.exec_driver_sql("SELECT pg_sleep(30)")

    bound(api, lock_seconds=1, seconds=0.2)
    with monkeypatch.context() as patched:
        patched.setattr("service.web.runs.views.runs", sleeps)
        patched.setattr("service.web.subscribers.subscribers.listed", sleeps)
        for path in ("/v1/runs", "/v1/subscribers"):
            problem(await api.client.get(path), 503, "unavailable")
    assert (await api.client.get("/v1/runs")).status_code == 200


async def test_a_locked_table_is_not_waited_for_and_nothing_is_written(api: Api) -> None:
    bound(api, lock_seconds=0.2, seconds=10)
    async with api.house.db.begin() as tx:
        await tx.conn.exec_driver_sql("LOCK TABLE tocsin.runs, tocsin.events IN ACCESS EXCLUSIVE MODE")
        event = {"type": "a", "subject": "s", "version": 1, "data": 1}
        answers = await asyncio.gather(
            *(api.client.post("/v1/jobs/shipments.expire/ticks", json=tick(f"r{number}")) for number in range(12)),
            api.client.post("/v1/events", json=event, headers={"idempotency-key": "k1"}),
            api.client.get("/v1/runs"),
        )
    for answer in answers:
        problem(answer, 503, "contended")
    assert not any((await api.rows()).values())
    assert (await api.client.post("/v1/events", json=event, headers={"idempotency-key": "k1"})).status_code == 201


async def test_those_whom_somebody_waits_for_wait_less_for_a_lock(api: Api) -> None:
    for db, said in ((state_of(api.app).runtime.db, "3s"), (api.house.db, "10s")):
        async with db.begin() as tx:
            assert (await tx.conn.exec_driver_sql("SHOW lock_timeout")).scalar_one() == said


async def test_a_database_that_takes_no_changes_is_not_ready(database_url: str, admin: AsyncEngine) -> None:
    async with admin.connect() as connection:
        name = make_url(database_url).database
        await connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    replica = Database(database_url)
    async with called(replica) as api:
        assert "read-only" in problem(await api.client.get("/readyz"), 503, "unavailable")["detail"]
        assert (await api.client.get("/livez")).status_code == 200
        assert (await api.client.get("/v1/runs")).status_code == 200
        problem(await api.client.post("/v1/jobs/shipments.expire/ticks", json=tick()), 503, "unavailable")
    await replica.close()


def bound(api: Api, *, lock_seconds: float, seconds: float) -> None:
    """Give the API less patience with the database."""
    state = state_of(api.app)
    state.runtime = replace(api.house, db=api.house.db.bounded(lock_seconds=lock_seconds, seconds=seconds))
