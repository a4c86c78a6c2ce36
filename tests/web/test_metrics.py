"""What Prometheus scrapes: everything is there from the start, counted once, and no caller makes up a label."""

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from service.domain.model import DeliveryState
from service.store.database import Database
from service.web.state import state_of
from tests.receivers import Receiver, answer
from tests.web.conftest import JOB, Api, called, instant, problem, tick

RESULTS = ["accepted", "conflict", "duplicate", "frozen", "invalid", "refused", "unavailable"]


async def _scrape(api: Api) -> dict[tuple[str, ...], float]:
    """Every sample: its name and its labels' values in the order of their names."""
    answer = await api.client.get("/metrics", headers={"authorization": ""})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return _samples(answer.text)


def _samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in parsed(text)
        for sample in family.samples
    }


async def _counted(api: Api, job: str = JOB) -> dict[str, float]:
    """The results that were counted for a job, without those that never came."""
    samples = await _scrape(api)
    return {it[2]: n for it, n in samples.items() if it[0] == "tocsin_ticks_total" and it[1] == job and n}


async def _post(api: Api, body: Any, job: str = JOB) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    await api.client.post(f"/v1/jobs/{job}/ticks", content=content, headers={"authorization": ""})


async def test_every_result_is_there_from_the_start(api: Api) -> None:
    samples = await _scrape(api)
    for job in ("", JOB, "reports"):
        assert sorted(it[2] for it in samples if it[:2] == ("tocsin_ticks_total", job)) == RESULTS
    ours = {it: n for it, n in samples.items() if it[0].startswith("tocsin_")}
    assert {it[0] for it, n in ours.items() if n} == {"tocsin_build_info", "tocsin_database_up"}


async def test_each_result_is_counted_once(api: Api) -> None:
    body = tick()
    for each in (body, body, tick("r1", instant(-60)), body | {"signature": "0" * 64}, b"{", tick(cutoff="soon")):
        await _post(api, each)
    assert await _counted(api) == {"accepted": 1, "duplicate": 1, "conflict": 1, "refused": 1, "invalid": 2}
    await api.scene.execute("UPDATE tocsin.runs SET claimed_at = now() - interval '1 day'")
    await _post(api, body)
    assert (await _counted(api))["frozen"] == 1
    assert (await _counted(api))["duplicate"] == 1


async def test_names_that_callers_make_up_are_no_labels(api: Api) -> None:
    for job in ("nope", "nope2", "x" * 300, "%0A"):
        await _post(api, tick(), job)
    await _post(api, b"{", "nope3")
    assert await _counted(api, "") == {"refused": 4, "invalid": 1}
    about_jobs = ("tocsin_ticks_total", "tocsin_runs_total", "tocsin_events_discovered_total")
    assert {it[1] for it in await _scrape(api) if it[0] in about_jobs} == {"", JOB, "reports"}


async def test_the_last_tick_is_told_of_other_processes_too(api: Api, database: Database) -> None:
    await _post(api, tick())
    [row] = await api.scene.execute("SELECT extract(epoch FROM last_tick_at)::float8 AS at FROM tocsin.jobs")
    assert (await _scrape(api))["tocsin_last_tick_timestamp_seconds", JOB] == pytest.approx(row.at)
    async with called(database) as other:
        samples = await _scrape(other)
        assert samples["tocsin_last_tick_timestamp_seconds", JOB] == pytest.approx(row.at)
        assert ("tocsin_last_tick_timestamp_seconds", "reports") not in samples


async def test_a_run_that_waits_for_a_worker_lags_and_one_that_is_held_does_not(api: Api) -> None:
    await _post(api, tick())
    await api.scene.execute("UPDATE tocsin.runs SET claimed_at = now() - interval '1 hour'")
    assert (await _scrape(api))["tocsin_run_lag_seconds",] >= 3600
    await api.client.post(f"/v1/jobs/{JOB}/pause")
    state_of(api.app).look_again_at = 0.0
    assert (await _scrape(api))["tocsin_run_lag_seconds",] == 0


async def test_without_the_database_a_scrape_is_answered_and_a_tick_that_has_to_come_again_is_counted() -> None:
    away = Database("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere")
    async with called(away) as api:
        problem(
            await api.client.post(f"/v1/jobs/{JOB}/ticks", json=tick(), headers={"authorization": ""}),
            503,
            "unavailable",
        )
        assert await _counted(api) == {"unavailable": 1}
    await away.close()


async def test_what_the_database_knew_goes_when_it_is_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await _scrape(api))[("tocsin_due",)] == 0
    away = Database("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere")
    monkeypatch.setattr(state_of(api.app).runtime.db, "engine", away.engine)
    assert (await _scrape(api))[("tocsin_due",)] == 0  # nobody asks again so soon
    state_of(api.app).look_again_at = 0.0
    samples = await _scrape(api)
    assert samples[("tocsin_database_up",)] == 0
    assert ("tocsin_due",) not in samples
    await away.close()


async def test_each_state_and_the_end_of_each_attempt_is_counted_once(api: Api) -> None:
    async with Receiver(answer(200), answer(404), answer(500)) as receiver:
        await api.scene.subscriber("acme", receiver.url)
        for number in range(3):
            await api.scene.event(f"ship-{number}")
        worker = api.scene.dispatcher()
        await worker.once()
        told = _samples(worker.settler.counters.text().decode())
    assert {it[1]: n for it, n in told.items() if it[0] == "tocsin_attempts_total" and n} == {
        "delivered": 1,
        "rejected": 1,
        "server_error": 1,
    }
    assert {it[1]: n for it, n in told.items() if it[0] == "tocsin_ended_total" and n} == {
        "delivered": 1,
        "rejected": 1,
    }
    counted = [told[f"tocsin_{name}_count",] for name in ("delivery_lag_seconds", "attempt_duration_seconds")]
    assert (counted, told["tocsin_attempts_per_delivery_count",], told["tocsin_worker_inflight",]) == ([3, 3], 2, 0)
    state_of(api.app).look_again_at = 0.0
    found = {it[1]: n for it, n in (await _scrape(api)).items() if it[0] == "tocsin_deliveries"}
    assert found == dict.fromkeys(DeliveryState, 0) | {"delivered": 1, "rejected": 1, "pending": 1}
