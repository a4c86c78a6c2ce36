"""A scheduler gone wild: a thousand ticks a second, nearly all of which repeat one that was sent before."""

import asyncio
import resource
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from time import monotonic

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from uuid_utils.compat import uuid7

from bench.figures import p95
from bench.house import JOB, House
from bench.parts.ticks import PATH, WARM, tick, ticked, up
from bench.processes import free_port, tocsin
from bench.sizes import Sizes
from bench.stage import Stage
from bench.waiting import PATIENCE_SECONDS, Failed

_WORKERS = 2
_RUNS_PER_SECOND = 10
_IDLE = timedelta(seconds=2)
"""Well below the API's own patience with an idle connection: one that it is closing would take a tick with it."""
_BELL = "bell"
_TAKEN = {HTTPStatus.ACCEPTED, HTTPStatus.OK}
_REFUSED = HTTPStatus.SERVICE_UNAVAILABLE
_NONE = 0
"""In place of a status: the connection was closed without an answer."""

_STORED = "SELECT run_id, count(*) FROM tocsin.runs WHERE job = :job GROUP BY run_id"
_ALL_SETTLED = "SELECT NOT EXISTS (SELECT FROM tocsin.runs WHERE job = :job AND settled_at IS NULL)"


@dataclass(frozen=True, slots=True)
class _Tick:
    """One tick and its answer, in seconds since the tick was due: when it was sent, and when it was answered."""

    run_id: str
    status: int
    sent: float
    answered: float


async def measure(stage: Stage, sizes: Sizes) -> None:
    """One storm after another, each in a database of its own."""
    # An answer that is late costs a connection, because the next tick does not wait for it.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def build(house: House) -> None:
        await house.subscribe(_BELL, stage.receiver.url(0), event_types=(JOB,))

    await stage.template("storm", build)
    for _ in range(sizes.rounds):
        await _sample(stage, sizes)


async def _sample(stage: Stage, sizes: Sizes) -> None:
    port = str(free_port())
    async with (
        stage.copy("storm") as house,
        tocsin("serve", stage.environment(house, TOCSIN_PORT=port)),
        ClientBuilder().pool_idle_timeout(_IDLE).build() as client,
        stage.workers(house, _WORKERS),
    ):
        url = f"http://127.0.0.1:{port}"
        await up(client, url)
        await ticked(client, url, WARM)
        await house.release(_BELL)
        began = monotonic()
        ticks = await _stormed(client, f"{url}{PATH}", sizes)
        _note(stage, sizes, ticks, monotonic() - began)
        await _check(stage, house, ticks)


async def _stormed(client: Client, url: str, sizes: Sizes) -> list[_Tick]:
    """Send all ticks when they are due, whether those before are answered or not; wait for all answers."""
    per_run = sizes.storm_rate // _RUNS_PER_SECOND
    sending: list[asyncio.Task[_Tick]] = []
    began, run_id, body = monotonic(), "", b""
    async with asyncio.timeout(sizes.storm_seconds + PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        for number in range(sizes.storm_rate * sizes.storm_seconds):
            due = began + number / sizes.storm_rate
            if number % per_run == 0:
                run_id = str(uuid7())
                body = tick(run_id)
            if (early := due - monotonic()) > 0:
                await asyncio.sleep(early)
            sending.append(group.create_task(_sent(client, url, run_id, body, due)))
    return [task.result() for task in sending]


async def _sent(client: Client, url: str, run_id: str, body: bytes, due: float) -> _Tick:
    sent = monotonic()
    try:
        status = (await client.post(url).body_bytes(body).build().send()).status
    except PyreqwestError:
        status = _NONE
    return _Tick(run_id, status, sent - due, monotonic() - due)


def _note(stage: Stage, sizes: Sizes, ticks: Sequence[_Tick], seconds: float) -> None:
    """What came of a storm whose last answer came after so many seconds; only 202 and 200 count as answers."""
    taken = sum(one.status in _TAKEN for one in ticks)
    stage.note("storm-sent", sizes.storm_rate)
    stage.note("storm-answered", taken / seconds)
    stage.note("storm-wait", p95([one.answered * 1000 for one in ticks]))
    stage.note("storm-late", p95([one.sent * 1000 for one in ticks]))
    stage.note("storm-refused", sum(one.status == _REFUSED for one in ticks))
    stage.note("storm-dropped", sum(one.status == _NONE for one in ticks))


async def _check(stage: Stage, house: House, ticks: Sequence[_Tick]) -> None:
    """Make sure that each run was claimed once, is stored once, and rang its bell once.

    Raises:
        Failed: otherwise, or a tick had an answer that docs/ticks.md does not have for it.

    """
    strange = Counter(one.status for one in ticks if one.status not in {*_TAKEN, _REFUSED, _NONE})
    if strange:
        raise Failed(f"ticks were answered with {dict(strange)}")
    await house.until(_ALL_SETTLED, job=JOB)
    stored = {row[0]: row[1] for row in await house.execute(_STORED, job=JOB)}
    claimed = Counter(one.run_id for one in ticks if one.status == HTTPStatus.ACCEPTED)
    known = {one.run_id for one in ticks if one.status in _TAKEN}
    if not known <= stored.keys() or len(stored) > WARM + len({one.run_id for one in ticks}):
        raise Failed(f"{len(known)} runs were answered, and {len(stored) - WARM} are stored")
    if max([*stored.values(), *claimed.values()]) > 1:
        raise Failed("a run was claimed more than once")
    bells = await house.keys(_BELL)
    if len(bells) != len(stored):
        raise Failed(f"{len(stored)} runs rang {len(bells)} bells")
    await stage.receiver.check(bells)
