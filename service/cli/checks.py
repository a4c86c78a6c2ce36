"""What `tocsin doctor` looks at: one function for each question, each answered with findings and their mends."""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_network

from sqlalchemy import text

from service import config, migrations
from service.cli.api import Api, NobodyAnswers
from service.cli.checks_dispatch import examine_dispatch
from service.cli.checks_jobs import examine_bearers, examine_issuers, examine_ticks
from service.cli.checks_retention import examine_retention
from service.cli.checks_subscribers import examine_subscribers
from service.cli.findings import Examination, Finding, Status
from service.domain.job import JobConfig
from service.runtime import database_url
from service.settings import Network, Settings
from service.sources import load
from service.store.database import Database

_SKEW_WARN_SECONDS = 2.0
_SKEW_FAIL_SECONDS = 60.0
"""Receivers check `webhook-timestamp`, this machine's time, against theirs; ticks are judged by the database's."""

_WIDEST = {4: 16, 6: 48}
"""A network with a shorter prefix than this is more than one site's."""


async def examine(url: str) -> list[Finding]:
    """Ask every question that can be asked; nothing is changed or created."""
    found = Examination()
    settings: Settings | None = None
    with found.question("settings"):
        settings = Settings()
        settings.check()
        found.note("settings", Status.OK, "they fit together")
        _strays(found, settings)
    if settings is not None:
        jobs = _jobs(found, settings)
        _egress(found, settings.egress_allow)
        await examine_issuers(found, jobs, settings)
        await _database(found, settings, jobs)
    await _api(found, url)
    return found.findings


def _strays(found: Examination, settings: Settings) -> None:
    for name, meant in config.strays(settings, os.environ).items():
        mend = f"did you mean {meant}?" if meant else "docs/settings.md has them all"
        found.note("settings", Status.WARN, f"{name} is no setting and has no effect: {mend}")


def _jobs(found: Examination, settings: Settings) -> Mapping[str, JobConfig]:
    """The jobs, as far as they can be read."""
    jobs: Mapping[str, JobConfig] = {}
    with found.question("jobs"):
        jobs = config.configured_jobs(settings)
        load(jobs.values())
        if jobs:
            found.note("jobs", Status.OK, f"{settings.config}: {', '.join(sorted(jobs))}; every secret can be read")
        else:
            found.note("jobs", Status.WARN, f"{settings.config} declares none: every tick will be refused")
    examine_bearers(found, jobs)
    return jobs


def _egress(found: Examination, allowed: Sequence[Network]) -> None:
    """Warn of what the operator lets through; nothing allowed is the safe state."""
    doubts = [doubt for network in allowed if (doubt := _doubt(network))]
    if doubts:
        found.note("egress", Status.WARN, "; ".join(doubts))
    else:
        let = ", ".join(map(str, allowed)) or "public addresses only"
        found.note("egress", Status.OK, let)


def _doubt(network: Network) -> str | None:
    loopback = ip_network("127.0.0.0/8" if network.version == 4 else "::1/128")  # noqa: PLR2004
    if network.overlaps(loopback) and network.prefixlen >= loopback.prefixlen:
        return f"TOCSIN_EGRESS_ALLOW has {network}: webhooks may reach services of this machine (for trials only)"
    if network.prefixlen < _WIDEST[network.version]:
        return f"TOCSIN_EGRESS_ALLOW has {network}, which is wide: name the receivers' networks one by one"
    return None


async def _database(found: Examination, settings: Settings, jobs: Mapping[str, JobConfig]) -> None:
    if settings.database_url is None and not (settings.data_dir / "postgres").exists():
        found.note("database", Status.WARN, f"there is none in {settings.data_dir} yet: `tocsin up` creates it")
        return
    with found.question("database"):
        async with database_url(settings) as url:
            await migrations.current(url)  # tells what is wrong with the URL, where something is
            await _server(found, url)
            with found.question("schema"):
                await migrations.check(url)
                found.note("schema", Status.OK, f"at {migrations.head()}, this release's")
                await examine_dispatch(found, url)
                await examine_ticks(found, jobs, url)
                await examine_retention(found, jobs, url)
                await examine_subscribers(found, settings, url)


async def _server(found: Examination, url: str) -> None:
    db = Database(url, pool_size=1)
    try:
        async with db.begin() as tx:
            number = int((await tx.conn.execute(text("SHOW server_version_num"))).scalar_one())
        before = datetime.now(UTC)  # connected by now, so that only one question and its answer lie in between
        async with db.begin() as tx:
            after = datetime.now(UTC)
    finally:
        await db.close()
    release, update = divmod(number, 10_000)
    if release < migrations.OLDEST_POSTGRESQL:
        mend = f"release {migrations.OLDEST_POSTGRESQL} or newer is needed"
        found.note("database", Status.FAIL, f"PostgreSQL {release}.{update}: {mend}")
    else:
        found.note("database", Status.OK, f"PostgreSQL {release}.{update}")
    found.note("clock", *_skew(abs((tx.now - (before + (after - before) / 2)).total_seconds())))


def _skew(seconds: float) -> tuple[Status, str]:
    said = f"this machine and the database differ by {seconds:.1f} s"
    if seconds < _SKEW_WARN_SECONDS:
        return Status.OK, said
    status = Status.WARN if seconds < _SKEW_FAIL_SECONDS else Status.FAIL
    return status, f"{said}: let both keep time with NTP, or receivers will refuse timestamps and ticks will be refused"


async def _api(found: Examination, url: str) -> None:
    with found.question("api"):
        async with Api(url) as api:
            try:
                await api.call("GET", "/readyz")
            except NobodyAnswers as refusal:
                found.note("api", Status.WARN, refusal.detail)
            else:
                found.note("api", Status.OK, f"{api.url} is ready")
