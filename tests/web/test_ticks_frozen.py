"""A body that never changes is told in the log, in the metrics and of the job, until a tick claims a run again."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from service.domain.job import BearerConfig, JobConfig
from service.store.database import Database
from tests.web.conftest import JOB, JOBS, SECRET, Api, called, instant, problem, tick

PATH = f"/v1/jobs/{JOB}/ticks"


async def _post(api: Api, body: dict[str, Any]) -> httpx.Response:
    return await api.client.post(PATH, json=body, headers={"authorization": ""})


async def _age(api: Api, minutes: int) -> None:
    """Let all runs have been claimed so long ago."""
    await api.scene.execute("UPDATE tocsin.runs SET claimed_at = now() - make_interval(mins => :old)", old=minutes)


async def _frozen_since(api: Api) -> str | None:
    since: str | None = (await api.client.get(f"/v1/jobs/{JOB}")).json()["frozenSince"]
    return since


async def test_a_body_that_repeats_an_old_run_is_told_until_a_tick_claims_one_again(api: Api) -> None:
    body = tick("hourly")
    await _post(api, body)
    assert await _frozen_since(api) is None
    await _age(api, 31)
    with capture_logs() as told:
        answer = await _post(api, body)
    assert (answer.status_code, answer.json()["duplicate"]) == (200, True)
    (line,) = [each for each in told if each["event"] == "tick.frozen"]
    assert (line["log_level"], line["job"], line["run"]) == ("warning", JOB, answer.json()["run"]["id"])
    assert "anew for each slot" in line["mend"]
    since = await _frozen_since(api)
    assert since is not None
    await _post(api, body)
    assert await _frozen_since(api) == since
    await api.client.post(f"/v1/jobs/{JOB}/runs", json={"runId": "by-hand", "cutoff": instant()})
    assert await _frozen_since(api) == since
    await _post(api, tick("hourly-2"))
    assert await _frozen_since(api) is None


async def test_a_retry_within_half_an_hour_is_no_frozen_body(api: Api) -> None:
    body = tick()
    await _post(api, body)
    await _age(api, 29)
    with capture_logs() as told:
        await _post(api, body)
    assert "tick.frozen" not in [each["event"] for each in told]
    assert await _frozen_since(api) is None


async def test_a_conflict_changes_nothing_of_it(api: Api) -> None:
    body = tick("hourly")
    await _post(api, body)
    await _age(api, 31)
    problem(await _post(api, tick("hourly", instant(-30))), 409, "run-conflict")
    assert await _frozen_since(api) is None


async def test_a_repeat_whose_cutoff_has_grown_too_old_is_refused_like_a_first_tick(database: Database) -> None:
    body = tick("r1", instant(-60))
    for age, status in ((3_600, 202), (3_600, 200), (30, 422)):
        async with called(database, {JOB: replace(JOBS[JOB], max_cutoff_age=age)}) as api:
            assert (await _post(api, body)).status_code == status


@pytest.mark.parametrize(("seconds", "is_told"), [(-8 * 86_400, True), (3600, False)])
async def test_a_cutoff_that_grew_too_old_is_refused_with_the_same_hint_in_the_log(
    api: Api, seconds: int, is_told: bool
) -> None:
    with capture_logs() as told:
        problem(await _post(api, tick("hourly", instant(seconds))), 422, "cutoff-out-of-range")
    hints = [each["mend"] for each in told if each["event"] == "tick.too_old"]
    assert [("anew for each slot" in hint) for hint in hints] == [True] * is_told


async def test_a_static_token_with_a_fixed_run_id_is_frozen_too(database: Database) -> None:
    token = b"a" * 32
    job = JobConfig(JOB, "tick", (SECRET,), bearer=BearerConfig((token,)))
    async with called(database, {JOB: job}) as api:
        for minutes in (31, 0):
            by = {"authorization": f"Bearer {token.decode()}"}
            answer = await api.client.post(PATH, json={"runId": "hourly"}, headers=by)
            assert answer.json()["duplicate"] is (minutes == 0)
            await _age(api, minutes)
        assert await _frozen_since(api) is not None
