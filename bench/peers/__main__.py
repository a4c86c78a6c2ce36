"""`python -m bench.peers`: Tocsin's wide drain and that of its peers in one run; see `make bench-peers`."""

import argparse
import json
import logging
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvloop

from bench import bodies, machine, table
from bench.figures import Figure, Ratio
from bench.house import House
from bench.parts import drains
from bench.peers.contenders import CONTENDERS, Contender, Settings
from bench.processes import Receiver, line_of, race, started
from bench.sizes import FULL, QUICK, Sizes
from bench.stage import Stage, say
from service import logs
from service.domain.identifiers import delivery_key
from service.embedded import EmbeddedPostgres

TOCSIN = "tocsin"
_WANTED = 1.25
_WARM_EVENTS = 1


@dataclass(frozen=True, slots=True)
class Contest:
    """What was found: the rates of each with its best settings, and what else was tried."""

    stage: Stage
    sizes: Sizes
    rates: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    tried: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    best: dict[Contender, Settings] = field(default_factory=dict[Contender, Settings])

    async def hold(self) -> None:
        """Find each one's best settings, then let all of them take turns."""
        for contender in CONTENDERS:
            self.best[contender] = await self._tuned(contender)
        await self.stage.template("wide", drains.backlog(self.stage, self.sizes.wide))
        for _ in range(self.sizes.rounds):
            self._note(TOCSIN, await self._tocsin())
            for contender, settings in self.best.items():
                self._note(contender.name, await self._drained(contender, settings))

    async def _tuned(self, contender: Contender) -> Settings:
        rates = {settings: await self._drained(contender, settings) for settings in contender.grid}
        self.tried[contender.name] = {str(settings): round(rate) for settings, rate in rates.items()}
        return max(rates, key=lambda settings: rates[settings])

    async def _tocsin(self) -> float:
        async with self.stage.copy("wide") as house, self.stage.workers(house, 2):
            return (await self.stage.drained(house, drains.MEASURED)).rate

    async def _drained(self, contender: Contender, settings: Settings) -> float:
        """Jobs a second of warmed workers."""
        async with self.stage.fresh("peer") as house, AsyncExitStack() as stack:
            env = _environment(house)
            async with started(*contender.command, "install", env=env) as installing:
                await installing.wait()
            command = (*contender.command, "work", settings.json)
            workers = [
                await stack.enter_async_context(started(*command, env=env, pipes=True))
                for _ in range(settings.processes)
            ]
            for worker in workers:
                await line_of(worker)
            await self._through(contender, house, _WARM_EVENTS)
            rate = await self._through(contender, house, self.sizes.wide[1])
            say(f"{contender.name} {contender.version}, {settings}: {rate:,.0f} jobs/s")
            return rate

    async def _through(self, contender: Contender, house: House, events: int) -> float:
        """Jobs a second, from the commit that makes all of them visible until the queue is empty again."""
        jobs = self._jobs(events)
        path = self.stage.folder / "jobs.json"
        path.write_text(json.dumps(jobs))
        await self.stage.receiver.reset()
        command = (*contender.command, "enqueue", str(path))
        async with started(*command, env=_environment(house), pipes=True) as enqueuing:
            await line_of(enqueuing)
            began = monotonic()
            await race([enqueuing], "go")
            await self.stage.receiver.heard(len(jobs))
            await house.until(contender.empty)
            seconds = monotonic() - began
        await self.stage.receiver.check({str(job["id"]) for job in jobs})
        return len(jobs) / seconds

    def _jobs(self, events: int) -> list[dict[str, object]]:
        """The same work: as many bodies, signed with as many keys, to the same receiver."""
        made = [bodies.event(number) for number in range(events)]
        return [
            {
                "url": self.stage.receiver.url(number),
                "id": delivery_key(event.id, f"s-{number}"),
                "subscriber": number,
                "body": event.body.decode(),
            }
            for event in made
            for number in range(self.sizes.wide[0])
        ]

    def _note(self, name: str, rate: float) -> None:
        self.rates.setdefault(name, []).append(rate)
        if name == TOCSIN:
            say(f"{name}: {rate:,.0f} deliveries/s")


def main() -> None:
    """Measure, print, and keep the results beside those of `python -m bench`."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke with small sizes; its figures mean nothing")
    parser.add_argument("--output", type=Path, default=table.RESULTS, help="where a full run keeps its results")
    given = parser.parse_args()
    logs.configure("console", level=logging.ERROR)
    results = uvloop.run(_measured(QUICK if given.quick else FULL))
    table.show(results)
    if not given.quick:
        table.write(given.output, table.read(given.output) | {"peers": results})


async def _measured(sizes: Sizes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder, EmbeddedPostgres(Path(folder)) as postgres:
        async with Receiver.running() as receiver:
            contest = Contest(Stage(postgres, receiver, Path(folder)), sizes)
            described = machine.describe(await contest.stage.server_version())
            await contest.hold()
    best = max(CONTENDERS, key=lambda contender: median(contest.rates[contender.name]))
    figures = {name: Figure(f"wide drain, {name}", "jobs/s") for name in contest.rates}
    ratio = Ratio(f"Tocsin, 2 processes ÷ the best peer, which is {best.name}", TOCSIN, best.name, _WANTED)
    peers = {contender.name: f"{contender.version}, {settings}" for contender, settings in contest.best.items()}
    found = table.results_of(contest.rates, [ratio], figures)
    return {"machine": described, "peers": peers, "tried": contest.tried} | found


def _environment(house: House) -> dict[str, str]:
    """Where the database is, as libpq's variables say it: everybody's driver understands them."""
    url = urlsplit(house.db.url)
    [host] = parse_qs(url.query)["host"]
    return {
        "PGHOST": host,
        "PGPORT": str(url.port),
        "PGUSER": url.username or "",
        "PGDATABASE": url.path.removeprefix("/"),
    }


if __name__ == "__main__":
    main()
