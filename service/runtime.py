"""Settings become running things here, and nowhere else."""

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_hex

from anyio import to_thread

from service import config, keyfiles, logs, migrations
from service.domain.errors import ConfigurationError
from service.domain.job import JobConfig
from service.embedded import EmbeddedPostgres
from service.flow import survey
from service.flow.attempt import Attempts
from service.flow.discovery import Discovery
from service.flow.dispatch import Dispatcher, Limits
from service.flow.doorbell import Doorbell
from service.flow.egress import Egress
from service.flow.outbound import Loader
from service.flow.settler import Settler
from service.flow.worker import Worker
from service.settings import Settings
from service.sources import Source, load
from service.store import subscribers
from service.store.database import Database
from service.store.vault import Vault


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the doors need: everything is open and checked."""

    settings: Settings
    jobs: Mapping[str, JobConfig]
    sources: Mapping[str, Source]
    db: Database
    vault: Vault
    egress: Egress
    doorbell: Doorbell

    def worker(self) -> Worker:
        """A worker of this process, with a name of its own in leases and evidence."""
        name = f"{socket.gethostname()[:80]}:{os.getpid()}:{token_hex(3)}"
        limits = Limits(
            lease_seconds=self.settings.lease_seconds,
            concurrency=self.settings.worker_concurrency,
            claim_batch=self.settings.claim_batch,
            drain_seconds=self.settings.drain_seconds,
        )
        loader = Loader(self.db, self.vault)
        attempts = Attempts(self.egress, name, shadow=self.settings.shadow)
        settler = Settler(self.db, logs.json_lines) if self.settings.log_format == "json" else Settler(self.db)
        dispatcher = Dispatcher(self.db, loader, attempts, settler, worker=name, limits=limits)
        discovery = Discovery(self.db, self.doorbell, self.jobs, self.sources, name, limits.lease_seconds)
        return Worker(self.db, self.doorbell, discovery, dispatcher)


@asynccontextmanager
async def open_runtime(settings: Settings, *, migrate: bool = False) -> AsyncIterator[Runtime]:
    """Open what the settings name, checked as a whole; with `migrate` the schema is brought up to date first.

    Raises:
        ConfigurationError: in one line, the setting that cannot work and the mend.
        Unavailable: the database cannot be reached.

    """
    jobs = config.load_jobs(settings.config)
    sources = load(jobs.values())
    settings = keyfiles.complete(settings)
    vault = Vault([key.get_secret_value() for key in settings.encryption_keys])
    async with _database(settings, migrate=migrate) as db:
        await _check_attempts_fit(settings, db)
        await survey.warn_at_start(db, vault, settings.egress_allow, settings.egress_deny)
        egress = Egress(settings.egress_allow, settings.egress_deny)
        try:
            yield Runtime(settings, jobs, sources, db, vault, egress, Doorbell(db))
        finally:
            await egress.close()


@asynccontextmanager
async def database_url(settings: Settings) -> AsyncIterator[str]:
    """The database's URL; the embedded server is kept running while the context lasts."""
    if settings.database_url is not None:
        yield settings.database_url
        return
    postgres = await to_thread.run_sync(EmbeddedPostgres, settings.data_dir)
    try:
        yield postgres.url
    finally:
        await to_thread.run_sync(postgres.stop)


@asynccontextmanager
async def _database(settings: Settings, *, migrate: bool) -> AsyncIterator[Database]:
    async with database_url(settings) as url:
        if migrate:
            await migrations.upgrade(url)
        else:
            await migrations.check(url)
        db = Database(url)
        try:
            yield db
        finally:
            await db.close()


async def _check_attempts_fit(settings: Settings, db: Database) -> None:
    """A lease that was shortened below a stored subscriber's timeout would end before its attempts."""
    async with db.begin() as tx:
        longest = await subscribers.longest_timeout(tx)
    if longest > settings.longest_attempt_seconds:
        message = (
            f"TOCSIN_LEASE_SECONDS ({settings.lease_seconds:g}) is too short for a subscriber whose timeoutSeconds is "
            f"{longest:g}: raise it, or lower the subscriber's timeout"
        )
        raise ConfigurationError(message)
