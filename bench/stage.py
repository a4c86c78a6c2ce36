"""What all parts share: the server, the receiver, databases that are made once and copied, and warmed workers."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from bench.figures import FIGURES
from bench.house import JOB, LOOPBACK, RETENTION, House
from bench.processes import ORIGINS, Receiver, tocsin
from bench.waiting import PATIENCE_SECONDS
from service import migrations
from service.embedded import EmbeddedPostgres
from service.store.database import Database
from service.store.vault import Vault, new_key

_BEGAN = monotonic()

Build = Callable[[House], Awaitable[None]]

TICK_SECRET = "a-tick-secret-of-the-benchmark"  # noqa: S105 - of nobody else
CONCURRENCY = 1024
"""Of each worker. What is claimed and what waits to be settled takes room as well, so that fewer are on the wire."""
CLAIM_BATCH = 500
SHIPPED = {"TOCSIN_WORKER_CONCURRENCY": "128", "TOCSIN_CLAIM_BATCH": "200"}
"""What these two are where nobody sets them."""
_WARM = "warm-"
_WARM_TYPE = "warm.up"
_WARM_EVENTS = 100


@dataclass(frozen=True, slots=True)
class Drained:
    """So many deliveries, each received once and settled, in so many seconds."""

    deliveries: int
    seconds: float

    @property
    def rate(self) -> float:
        """Deliveries a second."""
        return self.deliveries / self.seconds


@dataclass(slots=True)
class Stage:
    """Where it all takes place. `samples` grows with each `note`."""

    postgres: EmbeddedPostgres
    receiver: Receiver
    folder: Path
    key: str = field(default_factory=new_key)
    samples: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    _made: set[str] = field(default_factory=set[str])

    def note(self, figure: str, value: float) -> None:
        """Keep a sample, and show it to whoever waits."""
        self.samples.setdefault(figure, []).append(value)
        say(f"{FIGURES[figure].label}: {value:,.1f} {FIGURES[figure].unit}")

    @property
    def postmaster(self) -> int:
        """The process id of the database server."""
        return int((self.folder / "postgres" / "postmaster.pid").read_text().split()[0])

    async def server_version(self) -> str:
        """The version of the database server."""
        return await self._admin("SHOW server_version")

    async def template(self, name: str, build: Build) -> None:
        """Make the database of this name, once, with what `build` puts into it."""
        if name in self._made:
            return
        say(f"preparing {name}")
        await self._admin(f"CREATE DATABASE {name}")
        await migrations.upgrade(self.postgres.url_of(name))
        async with self.house(name) as house:
            for number in range(ORIGINS):
                await house.subscribe(f"{_WARM}{number}", self.receiver.url(number), event_types=(_WARM_TYPE,))
            await house.backlog(_WARM_EVENTS, _WARM_TYPE)
            await build(house)
            await house.outside("VACUUM ANALYZE")
        self._made.add(name)

    @asynccontextmanager
    async def house(self, name: str) -> AsyncIterator[House]:
        """The database of this name."""
        db = Database(self.postgres.url_of(name))
        try:
            yield House(db, Vault([self.key]))
        finally:
            await db.close()

    @asynccontextmanager
    async def copy(self, name: str) -> AsyncIterator[House]:
        """A copy of this database, gone afterwards: every sample starts from the same state."""
        await self._admin(f"CREATE DATABASE {name}_copy TEMPLATE {name} STRATEGY file_copy")
        try:
            async with self.house(f"{name}_copy") as house:
                yield house
        finally:
            await self._admin(f"DROP DATABASE {name}_copy WITH (FORCE)")

    @asynccontextmanager
    async def fresh(self, name: str) -> AsyncIterator[House]:
        """An empty database, gone afterwards, for somebody else's tables."""
        await self._admin(f"CREATE DATABASE {name}")
        try:
            async with self.house(name) as house:
                yield house
        finally:
            await self._admin(f"DROP DATABASE {name} WITH (FORCE)")

    def environment(self, house: House, **settings: str) -> dict[str, str]:
        """The settings of a process on this database: the shipped ones, but for what the place demands."""
        config = self.folder / "tocsin.toml"
        config.write_text(
            f'[jobs."{JOB}"]\nsource = "tick"\nevent_type = "{JOB}"\nsecrets = ["env:BENCH_TICK_SECRET"]\n'
            f'[jobs."{RETENTION}"]\nsource = "retention"\nsecrets = ["env:BENCH_RETENTION_SECRET"]\n'
            "options = { max_share = 1 }\n"
        )
        return {
            "BENCH_TICK_SECRET": TICK_SECRET,
            "BENCH_RETENTION_SECRET": f"{TICK_SECRET}-of-retention",
            "TOCSIN_CONFIG": str(config),
            "TOCSIN_DATABASE_URL": house.db.url,
            "TOCSIN_ENCRYPTION_KEYS": self.key,
            "TOCSIN_EGRESS_ALLOW": LOOPBACK,
            "TOCSIN_LOG_FORMAT": "json",
            "TOCSIN_WORKER_CONCURRENCY": str(CONCURRENCY),
            "TOCSIN_CLAIM_BATCH": str(CLAIM_BATCH),
            **settings,
        }

    @asynccontextmanager
    async def workers(self, house: House, count: int, **settings: str) -> AsyncIterator[list[int]]:
        """So many worker processes that have all delivered before and have nothing to do; gives their ids."""
        [(newest,)] = await house.execute("SELECT coalesce(max(id), 0) FROM tocsin.attempts")
        seen = "SELECT count(DISTINCT worker) FROM tocsin.attempts WHERE id > :newest"
        async with tocsin("worker", self.environment(house, **settings), count) as pids:
            while (await house.execute(seen, newest=newest))[0][0] < count:
                await self._warm_up(house)
            await self.receiver.reset()
            yield pids

    async def _warm_up(self, house: House) -> None:
        await house.execute(
            "UPDATE tocsin.deliveries SET state = 'pending', finished_at = NULL, attempt_count = 0, "
            "generation_attempts = 0, queue = 0, next_attempt_at = now() "
            "WHERE finished_at IS NOT NULL AND subscriber IN "
            "(SELECT row FROM tocsin.subscribers WHERE starts_with(id, :warm))",
            warm=_WARM,
        )
        await house.release(_WARM)
        await house.settled(_WARM)

    async def drained(self, house: House, subscribers: str, *, patience: float = PATIENCE_SECONDS) -> Drained:
        """Let these lanes go and wait until all of it is settled, which may take so many seconds.

        Raises:
            Failed: something else was received than each delivery once.

        """
        expected = await house.keys(subscribers)
        began = monotonic()
        await house.release(subscribers)
        await self.receiver.heard(len(expected), patience=patience)
        await house.settled(subscribers, patience=patience)
        seconds = monotonic() - began
        await self.receiver.check(expected)
        return Drained(len(expected), seconds)

    async def _admin(self, statement: str) -> str:
        engine = create_async_engine(self.postgres.url_of("postgres"), isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                result = await connection.execute(text(statement))
                return str(result.scalar()) if result.returns_rows else ""
        finally:
            await engine.dispose()


def say(line: str) -> None:
    """Tell how far it has come, and since when; the table alone goes to stdout."""
    print(f"{monotonic() - _BEGAN:4.0f} s  {line}", file=sys.stderr, flush=True)
