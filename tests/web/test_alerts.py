"""A drill of each shipped alert: silent in a house in order, true once its condition is made."""

import json
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest
import pytest_asyncio

from service.flow import control, upkeep
from service.flow.counters import Counters
from service.flow.dispatch import Dispatcher, Limits
from service.store import deliveries, pulse
from service.store.database import Database
from service.store.deliveries import Appetite
from service.store.vault import Vault, new_key
from service.web.state import state_of
from tests.cli.process import ROOT
from tests.promql import Scrape, true
from tests.scenes import Scene, shipments_job
from tests.web.conftest import JOB, Api, called, tick

_FILE = (ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")
ALERTS = dict(re.findall(r"- alert: (\w+)\n +expr: (.+)\n", _FILE))
DASHBOARD = json.loads((ROOT / "deploy/grafana/tocsin.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/observing.md").read_text(encoding="utf-8")
NOBODY = "http://127.0.0.1:9/hook"


@dataclass
class Watched:
    """A house in order whose API and worker are scraped."""

    api: Api
    worker: Dispatcher
    scrapes: list[Scrape] = field(default_factory=list)

    @property
    def scene(self) -> Scene:
        """What happens in it."""
        return self.api.scene

    @property
    def counters(self) -> Counters:
        """The worker's."""
        return self.worker.settler.counters

    async def scrape(self) -> str:
        """Look once more; returns what the API said."""
        state_of(self.api.app).look_again_at = 0.0
        answer = await self.api.client.get("/metrics")
        self.scrapes.append(Scrape.of(time.time(), answer.text, self.counters.text().decode()))
        return answer.text


@pytest_asyncio.fixture
async def watched(api: Api) -> Watched:
    """One subscriber, one tick that was taken, one worker that looks, and one scrape of all that."""
    api.scene.limits = Limits(concurrency=1)
    await api.scene.subscriber("acme", NOBODY, timeout_seconds=1)
    await api.client.post(f"/v1/jobs/{JOB}/ticks", json=tick())
    found = Watched(api, api.scene.dispatcher())
    await found.worker.once()
    async with api.scene.db.begin() as tx:
        await pulse.add(tx, {pulse.SCAN: 1})
    await found.scrape()
    return found


async def _no_data(watched: Watched) -> None:
    away = Database("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere")
    async with called(away) as blind:
        text = (await blind.client.get("/metrics")).text
    await away.close()
    watched.scrapes.append(Scrape.of(time.time(), text))


async def _no_scan(watched: Watched) -> None:
    watched.counters._scanned_at -= 300
    await watched.scene.execute("UPDATE tocsin.pulse SET at = at - interval '5 minutes' WHERE what = 'scan'")


async def _late(watched: Watched) -> None:
    await watched.scene.event()
    await watched.scene.execute("UPDATE tocsin.deliveries SET next_attempt_at = now() - interval '10 minutes'")


async def _no_headroom(watched: Watched) -> None:
    await watched.scene.event()
    await watched.scene.execute(
        "INSERT INTO tocsin.pulse (minute, what, n) "
        "SELECT date_trunc('minute', now()) - make_interval(mins => m), what, n "
        "FROM generate_series(1, 3) m, (VALUES ('arrived', 100), ('ended.delivered', 10)) AS t (what, n)"
    )


async def _breached(watched: Watched) -> None:
    await watched.scene.event()
    await watched.scene.execute("UPDATE tocsin.deliveries SET deadline_at = now()")
    await upkeep.expire_overdue(watched.scene.db, watched.counters)


async def _worker_gone(watched: Watched) -> None:
    await watched.scene.event()
    async with watched.scene.db.begin() as tx:
        await deliveries.claim(tx, Appetite(1, 1), worker="dead", lease_seconds=60)
    await watched.scene.expire_leases()


async def _worker_replaced(watched: Watched) -> None:
    await _worker_gone(watched)
    watched.worker._lapse_due = 0.0
    await watched.worker.once()


async def _silent(watched: Watched) -> None:
    await watched.scene.execute("UPDATE tocsin.jobs SET last_tick_at = now() - interval '2 days'")


async def _refused(watched: Watched) -> None:
    await watched.api.client.post(f"/v1/jobs/{JOB}/ticks", json=tick("r2") | {"signature": "0" * 64})


async def _failed(watched: Watched) -> None:
    broken = shipments_job(name=JOB)  # there is no such table
    counters = Counters([JOB])
    watched.scrapes[-1] = Scrape.of(watched.scrapes[-1].at, counters.text().decode())
    await replace(watched.scene.discovery(broken), counters=counters).once()
    watched.scrapes.append(Scrape.of(time.time(), counters.text().decode()))


async def _slow_run(watched: Watched) -> None:
    await watched.scene.execute("UPDATE tocsin.runs SET claimed_at = now() - interval '1 hour'")


async def _full(watched: Watched) -> None:
    await watched.scene.event()
    await watched.worker.take(1)
    watched.scrapes.append(Scrape.of(time.time(), watched.counters.text().decode()))
    await watched.worker.once()


async def _own_fault(watched: Watched) -> None:
    await watched.scene.event()
    scene = Scene(watched.scene.db, vault=Vault([new_key()]))
    worker = scene.dispatcher("w2")
    worker.settler.counters = watched.counters
    await worker.once()


async def _disabled(watched: Watched) -> None:
    await watched.scene.execute("UPDATE tocsin.lanes SET state = 'disabled'")


async def _paused(watched: Watched) -> None:
    await control.pause_dispatch(watched.scene.db, actor="ada", reason="a bad release")


DRILLS: dict[str, Callable[[Watched], Awaitable[None]]] = {
    "TocsinNoData": _no_data,
    "TocsinScanHeartbeatLost": _no_scan,
    "TocsinDeliveriesLate": _late,
    "TocsinDrainNever": _no_headroom,
    "TocsinDeadlineBreached": _breached,
    "TocsinDeadLettersGrowing": _breached,
    "TocsinLeasesExpiring": _worker_replaced,
    "TocsinLeasesOverdue": _worker_gone,
    "TocsinNoTick": _silent,
    "TocsinTicksRefused": _refused,
    "TocsinRunFailed": _failed,
    "TocsinRunLate": _slow_run,
    "TocsinWorkersSaturated": _full,
    "TocsinInternalFaults": _own_fault,
    "TocsinSubscriberDisabled": _disabled,
    "TocsinDispatchPaused": _paused,
}


@pytest.mark.parametrize("alert", ALERTS)
async def test_each_alert_is_silent_in_order_and_rings_when_its_condition_is_made(watched: Watched, alert: str) -> None:
    assert not true(ALERTS[alert], *watched.scrapes)
    scrapes = len(watched.scrapes)
    await DRILLS[alert](watched)
    if len(watched.scrapes) == scrapes:
        await watched.scrape()
    assert true(ALERTS[alert], *watched.scrapes)


def test_every_alert_is_drilled_and_explained() -> None:
    assert set(ALERTS) == set(DRILLS) == set(re.findall(r"- alert: (\w+)", _FILE))
    assert [alert for alert in ALERTS if f"`{alert}`" not in PAGE] == []


async def test_what_alerts_and_dashboard_and_page_name_is_there(watched: Watched) -> None:
    await _no_headroom(watched)
    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    named = set(re.findall(r"\btocsin_[a-z_]+[a-z]", "\n".join([*ALERTS.values(), *asked, PAGE])))
    families = set(
        re.findall(r"^# TYPE (\w+)", (await watched.scrape()) + watched.counters.text().decode(), re.MULTILINE)
    )
    known = families | {f"{name}_{part}" for name in families for part in ("bucket", "sum", "count")}
    assert named - known == set()
    assert {name for name in families if name.startswith("tocsin_")} - set(re.findall(r"\btocsin_\w+", PAGE)) == set()
