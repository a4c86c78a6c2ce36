"""One chaos run from its start to its verdicts."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.chaos import plan
from tests.chaos.blows import Blows, Say
from tests.chaos.house import House
from tests.chaos.invariants import verdicts
from tests.chaos.operators import Operators
from tests.chaos.plan import Sizes
from tests.chaos.record import Books, Record
from tests.chaos.report import Outcome
from tests.chaos.traffic import Traffic

_LEAST_PATIENCE_SECONDS = 60.0
_DELIVERIES_A_SECOND = 100.0
_LOOK_SECONDS = 0.25
_GAUGES_SECONDS = 20.0
_UNSETTLED = """
    SELECT 'deliveries', count(*) FROM tocsin.deliveries WHERE finished_at IS NULL
    UNION ALL SELECT 'events', count(*) FROM tocsin.events WHERE fanned_out_at IS NULL
    UNION ALL SELECT 'runs', count(*) FROM tocsin.runs WHERE settled_at IS NULL
    UNION ALL SELECT 'replays', count(*) FROM tocsin.replays WHERE state = 'running'
    UNION ALL SELECT 'lanes', count(*) FROM tocsin.lanes WHERE leased <> 0 OR leased_late <> 0
"""


async def chaos(folder: Path, seed: int, sizes: Sizes, say: Say) -> Outcome:
    """Do it all in this folder, and judge it.

    Raises:
        RuntimeError: a process did not come up.
        AssertionError: the API was at fault by its own word.

    """
    began = time.monotonic()
    events, steps = plan.events(seed, sizes), plan.steps(seed, sizes)
    async with House.open(folder, seed) as house:
        say(f"seed {seed}: {len(events):,} events, {len(steps)} blows, in {folder}")
        traffic = Traffic(house, events)
        operators = await _storm(house, traffic, seed, steps, say)
        say("the storm is over")
        unsettled = await _settled(house, sizes)
        record = await _judged(house, [event.name for event in events], traffic, operators, unsettled)
        seconds = time.monotonic() - began
        return Outcome(seed, sizes, seconds, record, verdicts(record), operators.done)


async def _storm(house: House, traffic: Traffic, seed: int, steps: Sequence[plan.Step], say: Say) -> Operators:
    """Traffic, operators and blows side by side until all blows are dealt and all events confirmed."""
    operators = Operators(house, seed)
    async with asyncio.TaskGroup() as group:
        group.create_task(operators.work())
        flowing = group.create_task(traffic.flow())
        await Blows(house, say).deal(steps, traffic.allow)
        await flowing
        operators.stop()
    return operators


async def _settled(house: House, sizes: Sizes) -> list[str]:
    """Wait until nothing is left to do, and touch nothing; what is left when patience ends."""
    ends = time.monotonic() + _LEAST_PATIENCE_SECONDS + sizes.deliveries / _DELIVERIES_A_SECOND
    while True:
        left = [f"{row[1]} {row[0]} are not at their end" for row in await house.server.ask(_UNSETTLED) if row[1]]
        if not left or time.monotonic() > ends:
            return left
        await asyncio.sleep(_LOOK_SECONDS)


async def _judged(
    house: House, planned: Sequence[plan.EventName], traffic: Traffic, operators: Operators, unsettled: Sequence[str]
) -> Record:
    """Ask all three sides; the workers leave first, so that what they still know is written."""
    counted = {await worker.up(): await _counts(worker.env["TOCSIN_PORT"]) for worker in house.workers}
    left = [f"a worker left with {code}" for worker in house.workers if (code := await worker.leave())]
    left += [line for place in (house.api, *house.workers) for line in place.deserted]
    books = await Books.read(house.server)
    return Record(
        planned=planned,
        events=books.events,
        deliveries=books.deliveries,
        attempts=books.attempts,
        runs=books.runs,
        lanes=books.lanes,
        called_off=books.called_off,
        requests=house.receivers.requests,
        applied=house.receivers.applied,
        published=traffic.published,
        pauses=operators.pauses,
        troubles=house.troubles,
        gauges=await _gauges(house),
        counted=counted,
        reconciled=await _reconciled(house),
        unsettled=[*unsettled, *left],
    )


async def _counts(port: str) -> dict[str, float]:
    """What a worker counted of its attempts, by outcome."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    return {name.partition("/")[2]: value for name, value in _samples(text) if name.startswith("tocsin_attempts_total")}


async def _gauges(house: House) -> dict[str, float]:
    """What the API says of the whole house, as soon as it has looked after the last change."""
    ends = time.monotonic() + _GAUGES_SECONDS
    while True:
        found = dict(_samples((await house.call("GET", "/metrics")).text))
        if (found.get("tocsin_due") == 0 and found.get("tocsin_database_up") == 1) or time.monotonic() > ends:
            return found
        await asyncio.sleep(_LOOK_SECONDS)


def _samples(text: str) -> Iterator[tuple[str, float]]:
    """Each sample by its name and the values of its labels."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield "/".join((sample.name, *sample.labels.values())), sample.value


async def _reconciled(house: House) -> list[str]:
    """What the house itself finds wrong, or could not look at."""
    report = (await house.call("GET", "/v1/reconciliation")).json()
    found = [f"{each['kind']}: {each['count']} ({', '.join(each['examples'][:3])})" for each in report["findings"]]
    return [*found, *(f"no answer in time: {each}" for each in report["unchecked"])]
