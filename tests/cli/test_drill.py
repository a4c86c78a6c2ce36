"""`tocsin drill`: green where all is well, red where a row is missing, and never green for what was not run."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cli.drill_crash import _check_cut
from service.cli.drill_evidence import Check, NotRun, Overdue, Ruling, both_sides, check, judged
from service.cli.drill_receiver import Request
from service.cli.drill_stage import Act, Scene
from tests.cli import inside
from tests.cli.conftest import Live, created, running

CONFIG = """
[jobs."drill"]
source = "outbox"
secrets = ["env:SHIPMENTS_TICK_SECRET"]
page_size = 3
"""
HARMLESS = {"lost-ack", "throttled", "slow", "rejected", "replayed", "paused", "cancelled"}
WITH_A_JOB = {"duplicate-tick", "tick-storm", "page-boundary"}
DISRUPTIVE = {"lease-expiry", "database-gone", "crash"}


@pytest_asyncio.fixture(scope="module")
async def outbox(
    server: URL, admin: AsyncEngine, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Live]:
    """`tocsin up` with an outbox job for drills, and with a lease that most timeouts do not fit."""
    config = tmp_path_factory.mktemp("drill") / "tocsin.toml"
    config.write_text(CONFIG)
    name = f"tocsin_drill_{uuid4().hex[:12]}"
    url = server.set(database=name).render_as_string(hide_password=False)
    async with created(admin, name, template), running(url, config, tmp_path_factory, TOCSIN_LEASE_SECONDS="5") as it:
        yield it


async def test_a_healthy_installation_keeps_every_promise_and_is_left_clean(outbox: Live) -> None:
    done = await inside.call("drill", "--job", "drill", "--json", env=outbox.env)
    assert done.code == 0, done.out + done.err
    verdicts = {each["sequence"]: each for each in done.json["verdicts"]}
    assert {name: each["verdict"] for name, each in verdicts.items()} == {
        **dict.fromkeys(HARMLESS | WITH_A_JOB, "kept"),
        **dict.fromkeys(DISRUPTIVE, "not run"),
    }
    cited = re.compile(r"dlv_[0-9a-v]{32} |run [0-9a-f-]{36} ")
    for name in HARMLESS | WITH_A_JOB:
        assert all(cited.match(row) for each in verdicts[name]["checks"] for row in each["rows"]), name
    boundary = [row for each in verdicts["page-boundary"]["checks"] for row in each["rows"]]
    assert [row.partition(": ")[2].partition(" at ")[0] for row in boundary[:3]] == [
        "2 events, 2 due",
        "4 events, 3 due",
        "5 events, 4 due",
    ]
    assert all(row.endswith(" + 1 left over from the run before") for row in boundary[1:3])
    assert all("--disruptive" in verdicts[name]["said"] for name in DISRUPTIVE)
    assert {line["sequence"] for line in done.json["timeline"]} >= HARMLESS | WITH_A_JOB
    assert (done.json["notCleared"], done.json["dueUnfound"]) == ([], 0)
    assert (await inside.call("subscribers", "list", "--json", env=outbox.env)).json == []
    left = (await inside.call("deliveries", "--limit", "1000", "--json", env=outbox.env)).json
    assert {each["state"] for each in left} == {"delivered", "cancelled"}


async def test_a_drill_that_is_stopped_tells_what_had_ended_and_what_it_leaves_due(
    outbox: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end(_: Scene) -> list[Check]:
        return [Check("it arrived", held=True, rows=("dlv_0",))]

    async def be_stopped(scene: Scene) -> list[Check]:
        await scene.subscriber("200")
        await scene.publish(2, due_at="2026-01-01T00:00:00Z")
        raise asyncio.CancelledError

    acts = (Act("lost-ack", "it arrives", end), Act("throttled", "it waits", be_stopped))
    monkeypatch.setattr("service.cli.drill_play.HARMLESS", acts)
    done = await inside.call("drill", "--json", env=outbox.env)
    assert (done.code, done.err.count("stopped before it was done")) == (1, 1)
    verdicts = {each["sequence"]: each["verdict"] for each in done.json["verdicts"]}
    assert verdicts == {"lost-ack": "kept", **dict.fromkeys({"throttled"} | WITH_A_JOB | DISRUPTIVE, "not run")}
    assert (done.json["notCleared"], done.json["dueUnfound"]) == ([], 2)
    assert (await inside.call("subscribers", "list", "--json", env=outbox.env)).json == []


async def test_a_wrong_secret_is_found_before_anything_is_made_due(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.drill_play.HARMLESS", ())
    wrong = {**live.env, "WRONG": "another secret than the job's, long enough"}
    done = await inside.call("drill", "--job", "shipments.expire", "--secret", "env:WRONG", "--json", env=wrong)
    assert (done.code, done.json["counts"]["broken"], done.json["published"]) == (0, 0, 1)
    said = {each["sequence"]: each["said"] for each in done.json["verdicts"]}
    assert all("--secret" in said[name] for name in WITH_A_JOB)


def test_a_run_that_is_completed_before_a_lease_could_end_does_not_count_as_interrupted() -> None:
    killed_at = datetime(2026, 1, 1, tzinfo=UTC)
    run = {"id": "r", "runId": "r", "state": "completed", "events": 300, "completedAt": "2026-01-01T00:00:08.1Z"}
    assert _check_cut(run, killed_at, lease=8) == pytest.approx(8.1)
    with pytest.raises(NotRun, match="did not hold the run"):
        _check_cut({**run, "completedAt": "2026-01-01T00:00:01.3Z"}, killed_at, lease=8)


async def test_a_drill_where_nothing_can_be_sent_is_refused_with_the_mend(live: Live) -> None:
    await inside.call("pause", "dispatch", "--reason", "a bad release", env=live.env)
    try:
        done = await inside.call("drill", env=live.env)
    finally:
        await inside.call("resume", "dispatch", env=live.env)
    assert (done.code, done.out) == (1, "")
    assert "a bad release" in done.err
    assert "tocsin resume dispatch" in done.err


KEY = "0:drill"


def request(attempt: int, **changes: Any) -> Request:
    seen: dict[str, Any] = {"at": 1.0, "key": KEY, "generation": 1, "attempt": attempt, "sha256": "ab", "fault": None}
    return Request(**{**seen, "duplicate": False, "answer": "200", **changes})


def delivery(*attempts: str) -> dict[str, Any]:
    rows = [
        {"number": number, "generation": 1, "outcome": outcome, "late": False, "counted": True}
        for number, outcome in enumerate(attempts, 1)
    ]
    return {"id": "dlv_0", "key": KEY, "state": "delivered", "payloadSha256": "ab", "attempts": rows}


@pytest.mark.parametrize(
    ("requests", "attempts", "broken"),
    [
        ([request(1), request(2)], ("disconnected", "delivered"), None),
        ([request(1), request(2)], ("disconnected",), "each request that the receiver saw has its attempt"),
        ([request(2)], ("in_doubt", "delivered"), None),
        ([request(2)], ("timeout", "delivered"), "each attempt on record that was answered was seen"),
        ([request(1), request(1)], ("delivered",), "no attempt was sent twice"),
        ([request(1, sha256="cd")], ("delivered",), "signed right and had the stored bytes"),
        ([request(1, fault="webhook-signature is missing")], ("delivered",), "signed right and had the stored bytes"),
    ],
)
def test_what_only_one_side_knows_is_a_broken_promise(
    requests: list[Request], attempts: tuple[str, ...], broken: str | None
) -> None:
    verdict = judged("s", "p", both_sides(requests, [delivery(*attempts)]))
    assert verdict.ruling is (Ruling.KEPT if broken is None else Ruling.BROKEN)
    assert (broken or "") in verdict.said
    assert verdict.rows


def test_a_promise_without_a_row_that_proves_it_is_not_kept() -> None:
    assert judged("s", "p", [check("nothing was seen", True)]).ruling is Ruling.NOT_RUN  # noqa: FBT003


@pytest.mark.parametrize(
    ("ended", "code", "ruling"),
    [
        (Overdue(check("it arrives within 1 s", False, delivery("timeout"))), 1, "broken"),  # noqa: FBT003
        (NotRun("name a job with --job"), 0, "not run"),
    ],
)
async def test_only_a_broken_promise_is_exit_code_1(
    live: Live, monkeypatch: pytest.MonkeyPatch, ended: Exception, code: int, ruling: str
) -> None:
    async def end(_: Scene) -> list[Check]:
        raise ended

    monkeypatch.setattr("service.cli.drill_play.HARMLESS", (Act("lost-ack", "it arrives", end),))
    done = await inside.call("drill", env=live.env)
    assert done.code == code
    assert re.search(rf"^{ruling}\s+lost-ack\s+it arrives", done.out, re.MULTILINE)


def test_hands_on_processes_need_the_flag() -> None:
    assert inside.run("drill", "--worker-pid", "4711").code == 2
