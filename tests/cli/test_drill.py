"""`tocsin drill`: green where all is well, red where a row is missing, and never green for what was not run."""

import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

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


@pytest_asyncio.fixture
async def outbox(
    server: URL, admin: AsyncEngine, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Live]:
    """`tocsin up` with an outbox job for drills."""
    config = tmp_path_factory.mktemp("drill") / "tocsin.toml"
    config.write_text(CONFIG)
    name = f"tocsin_drill_{uuid4().hex[:12]}"
    url = server.set(database=name).render_as_string(hide_password=False)
    async with created(admin, name, template), running(url, config, tmp_path_factory) as it:
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
    assert all("--disruptive" in verdicts[name]["said"] for name in DISRUPTIVE)
    assert {line["sequence"] for line in done.json["timeline"]} >= HARMLESS | WITH_A_JOB
    assert done.json["notCleared"] == []
    assert (await inside.call("subscribers", "list", "--json", env=outbox.env)).json == []
    left = (await inside.call("deliveries", "--limit", "1000", "--json", env=outbox.env)).json
    assert {each["state"] for each in left} == {"delivered", "cancelled"}


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
