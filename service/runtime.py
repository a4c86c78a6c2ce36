"""Settings become running things here, and nowhere else."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import structlog
from anyio import to_thread

from service import config, keyfiles, logs, migrations
from service.domain.errors import ConfigurationError
from service.domain.job import JobConfig
from service.domain.timestamps import format_rfc3339
from service.embedded import EmbeddedPostgres
from service.flow import survey
from service.flow.attempt import Attempts
from service.flow.counters import Counters
from service.flow.discovery import Discovery
from service.flow.dispatch import Dispatcher, Limits
from service.flow.doorbell import Doorbell
from service.flow.egress import Egress
from service.flow.outbound import Loader
from service.flow.settler import Settler, tell_each
from service.flow.tokens import Tokens
from service.flow.worker import Worker
from service.settings import Settings
from service.sources import Source, load
from service.store import dispatching, subscribers
from service.store.database import Database
from service.store.vault import Vault

if TYPE_CHECKING:
    from service.flow.tracing import Tracing

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
"""How often it is looked whether the embedded PostgreSQL still lives."""
REVIVAL_SECONDS = 60.0
"""How long reviving it is tried, in vain, before this process gives up."""


HOT_SECONDS = 20.0
"""No transaction of the hot path lasts longer: what takes this long hangs on a connection that is dead."""
PAGE_SECONDS = 60.0
"""Beyond its statement's time limit, for a page of discovery and for upkeep."""


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
    tokens: Tokens
    counters: Counters = field(default_factory=Counters)
    tracing: "Tracing | None" = None
    """None where nothing is traced."""

    def __post_init__(self) -> None:
        """Let the counters know of the doorbell, which counts its rings itself."""
        self.counters.published = lambda: self.doorbell.rings

    def worker(self) -> Worker:
        """A worker of this process, with a name of its own in leases and evidence."""
        name = f"{socket.gethostname()[:80]}:{os.getpid()}:{token_hex(3)}"
        limits = Limits(
            lease_seconds=self.settings.lease_seconds,
            concurrency=self.settings.worker_concurrency,
            claim_batch=self.settings.claim_batch,
            drain_seconds=self.settings.drain_seconds,
        )
        quick = self.db.bounded(seconds=HOT_SECONDS)
        longest_page = max((job.statement_timeout_seconds for job in self.jobs.values()), default=0.0)
        patient = self.db.bounded(seconds=longest_page + PAGE_SECONDS)
        loader = Loader(quick, self.vault)
        attempts = Attempts(self.egress, name, shadow=self.settings.shadow, tracing=self.tracing)
        tell = logs.json_lines if self.settings.log_format == "json" else tell_each
        settler = Settler(quick, tell, self.counters, self.tracing)
        dispatcher = Dispatcher(quick, loader, attempts, settler, worker=name, limits=limits)
        lease = limits.lease_seconds
        discovery = Discovery(patient, self.doorbell, self.jobs, self.sources, name, lease, self.counters, self.tracing)
        return Worker(patient, self.doorbell, discovery, dispatcher)


@asynccontextmanager
async def open_runtime(settings: Settings, *, migrate: bool = False) -> AsyncIterator[Runtime]:
    """Open what the settings name, checked as a whole; with `migrate` the schema is brought up to date first.

    Raises:
        ConfigurationError: in one line, the setting that cannot work and the mend.
        Unavailable: the database cannot be reached.

    """
    for name, meant in config.strays(settings, os.environ).items():
        log.warning("settings.unknown", name=name, did_you_mean=meant, effect="none: see docs/settings.md")
    jobs = config.configured_jobs(settings)
    sources = load(jobs.values())
    _warn_of_bearers(jobs)
    settings = keyfiles.complete(settings)
    vault = Vault([key.get_secret_value() for key in settings.encryption_keys])
    async with _tracing(settings.otlp_endpoint) as tracing, _database(settings, migrate=migrate) as db:
        await _check_attempts_fit(settings, db)
        await survey.warn_at_start(db, vault, settings.egress_allow, settings.egress_deny)
        await _warn_of_pause(db)
        egress = Egress(settings.egress_allow, settings.egress_deny)
        tokens = Tokens(egress)
        try:
            yield Runtime(settings, jobs, sources, db, vault, egress, Doorbell(db), tokens, Counters(jobs), tracing)
        finally:
            await tokens.close()
            await egress.close()


@asynccontextmanager
async def _tracing(endpoint: str | None) -> AsyncIterator["Tracing | None"]:
    """Nothing of OpenTelemetry's SDK is even imported unless its endpoint is set."""
    if endpoint is None:
        yield None
        return
    from service.flow.trace_export import exporting  # noqa: PLC0415 - a tenth of a second, for some only

    export = exporting(endpoint)
    tracing = export.__enter__()
    try:
        yield tracing
    finally:
        await to_thread.run_sync(export.__exit__, None, None, None)


def _warn_of_bearers(jobs: Mapping[str, JobConfig]) -> None:
    """Whoever switches the weakest class on reads its limits where it is switched on."""
    for job in jobs.values():
        if job.bearer is not None:
            log.warning(
                "ticks.bearer_allowed",
                job=job.name,
                limits="whoever sees the token can tick this job for as long as it is configured, with any run id and "
                "cutoff: it signs nothing and does not expire",
                mend="use oidc or secrets where the scheduler can; otherwise TLS only, and a new token now and then",
            )


@asynccontextmanager
async def database_url(settings: Settings, *, watched: bool = False) -> AsyncIterator[str]:
    """The database's URL; the embedded server is kept running while the context lasts.

    With `watched` it is started again when it dies; where that fails, what runs in the context is cancelled.

    Raises:
        ConfigurationError: it cannot be started.

    """
    if settings.database_url is not None:
        yield settings.database_url
        return
    postgres = await _started(settings.data_dir)
    try:
        async with _watching(postgres) if watched else nullcontext():
            yield postgres.url
    finally:
        await to_thread.run_sync(postgres.stop)


async def _started(data_dir: Path) -> EmbeddedPostgres:
    """The embedded server. Its start cannot be stopped half-way: whoever is cancelled first sees it up, then down."""
    starting = asyncio.create_task(to_thread.run_sync(EmbeddedPostgres, data_dir))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end_of(starting)
        if not starting.cancelled() and starting.exception() is None:
            await _end_of(asyncio.create_task(to_thread.run_sync(starting.result().stop)))
        raise


async def _end_of(task: asyncio.Task[Any]) -> None:
    """Wait for it, however often whoever waits is cancelled meanwhile."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})


@asynccontextmanager
async def _watching(postgres: EmbeddedPostgres) -> AsyncIterator[None]:
    """Revive the server for as long as the context lasts; the context is cancelled when it stays dead."""
    inside = asyncio.current_task()
    watch = asyncio.create_task(_revive(postgres))
    watch.add_done_callback(lambda done: None if done.cancelled() or inside is None else inside.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if watch.done() and inside is not None:
            inside.uncancel()
            watch.result()
        raise
    finally:
        watch.cancel()


async def _revive(postgres: EmbeddedPostgres) -> None:
    """Start the server again whenever it has died.

    Raises:
        ConfigurationError: it did not come up for REVIVAL_SECONDS.

    """
    dead_since: float | None = None
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            await to_thread.run_sync(postgres.revive)
            dead_since = None
        except ConfigurationError as refusal:
            dead_since = dead_since or time.monotonic()
            if time.monotonic() - dead_since > REVIVAL_SECONDS:
                raise
            log.warning("embedded_postgres.still_dead", because=refusal.detail)


@asynccontextmanager
async def _database(settings: Settings, *, migrate: bool) -> AsyncIterator[Database]:
    async with database_url(settings, watched=True) as url:
        if migrate:
            await migrations.upgrade(url)
        else:
            await migrations.check(url)
        db = Database(url)
        try:
            yield db
        finally:
            await db.close()


async def _warn_of_pause(db: Database) -> None:
    """A worker that is started into a pause sends nothing, which must not look like a fault of its own."""
    async with db.begin() as tx:
        standing = await dispatching.standing(tx)
    if standing.paused:
        log.warning(
            "dispatch.paused",
            since=None if standing.since is None else format_rfc3339(standing.since),
            by=standing.paused_by,
            reason=standing.reason,
            effect="nothing is sent, by any worker",
            mend="`tocsin resume dispatch`",
        )


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
