"""How long a scheduler waits for the answer to its tick while the workers drain a backlog."""

import asyncio
import json
from datetime import UTC, datetime
from time import monotonic

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from uuid_utils.compat import uuid7

from bench.figures import p95
from bench.house import JOB, House
from bench.processes import free_port, tocsin
from bench.sizes import Sizes
from bench.stage import TICK_SECRET, Stage
from bench.waiting import Failed, until
from service.domain.signing import tick_signature
from service.domain.timestamps import format_rfc3339

_WORKERS = 2
WARM = 20
"""Ticks before those that are measured."""
_PAUSE_SECONDS = 0.03
PATH = f"/v1/jobs/{JOB}/ticks"
ACCEPTED = 202


async def measure(stage: Stage, sizes: Sizes) -> None:
    """One API, two workers, one backlog, which is held and let go in turns."""

    async def build(house: House) -> None:
        subscribers, events = sizes.ticked
        for number in range(subscribers):
            await house.subscribe(f"s-{number}", stage.receiver.url(number))
        await house.backlog(events)

    await stage.template("ticked", build)
    port = str(free_port())
    async with (
        stage.house("ticked") as house,
        tocsin("serve", stage.environment(house, TOCSIN_PORT=port)),
        ClientBuilder().build() as client,
        stage.workers(house, _WORKERS),
    ):
        url = f"http://127.0.0.1:{port}"
        await up(client, url)
        await ticked(client, url, WARM)
        for _ in range(sizes.rounds):
            stage.note("tick-idle", p95(await ticked(client, url, sizes.ticks)))
            await house.release("s-")
            stage.note("tick-drain", p95(await ticked(client, url, sizes.ticks)))
            await _check_unfinished(house)
            await house.hold("s-")


async def ticked(client: Client, url: str, ticks: int) -> list[float]:
    """The milliseconds that each of so many ticks took, one after another."""
    taken = []
    for _ in range(ticks):
        request = client.post(f"{url}{PATH}").body_bytes(tick(str(uuid7()))).build()
        began = monotonic()
        answer = await request.send()
        taken.append((monotonic() - began) * 1000)
        if answer.status != ACCEPTED:
            raise Failed(f"a tick was answered with {answer.status}")
        await asyncio.sleep(_PAUSE_SECONDS)
    return taken


def tick(run_id: str) -> bytes:
    """The signed body of a tick of this run, with the time now as its cutoff."""
    cutoff = format_rfc3339(datetime.now(UTC))
    signature = tick_signature(TICK_SECRET.encode(), run_id, cutoff)
    return json.dumps({"runId": run_id, "cutoffIso": cutoff, "signature": signature}).encode()


async def up(client: Client, url: str) -> None:
    """Wait until the API answers."""

    async def answers() -> bool:
        try:
            await client.get(f"{url}/readyz").build().send()
        except PyreqwestError:
            return False
        return True

    await until(answers, "the API")


async def _check_unfinished(house: House) -> None:
    rows = await house.execute("SELECT EXISTS (SELECT FROM tocsin.deliveries WHERE finished_at IS NULL)")
    if not rows[0][0]:
        raise Failed("the backlog was drained before its ticks were over")
