"""What `tocsin doctor` looks at in jobs: whether ticks still claim runs, who may tick, whether issuers can be asked."""

from collections.abc import Mapping

from service.cli.findings import Examination, Status, some
from service.domain.job import JobConfig
from service.flow.egress import Egress
from service.flow.issuers import Away, Issuers
from service.flow.resolver import Resolver
from service.settings import Settings
from service.store import jobs
from service.store.database import Database

_LOOK_UP_SECONDS = 2.0


async def examine_issuers(found: Examination, configured: Mapping[str, JobConfig], settings: Settings) -> None:
    """Whether the issuers' keys can be fetched through the guard, as the first tick with a token of theirs would."""
    wanted = {(job.oidc.jwks_uri or job.oidc.issuer): job.oidc for job in configured.values() if job.oidc is not None}
    if not wanted:
        return
    egress = Egress(settings.egress_allow, settings.egress_deny, Resolver(timeout_seconds=_LOOK_UP_SECONDS))
    issuers = Issuers(egress)
    away = []
    for url, oidc in sorted(wanted.items()):
        try:
            if not await issuers.ask(oidc):
                away.append(f"{url}: it has no keys")
        except Away as fault:
            away.append(f"{url}: {fault}")
    await egress.close()
    if away:
        mend = "correct issuer or jwks_uri, or let it through with TOCSIN_EGRESS_ALLOW; until then such ticks are 503"
        found.note("issuers", Status.WARN, f"no keys from {some(away, between='; ')}: {mend}")
    else:
        found.note("issuers", Status.OK, f"all of {len(wanted)} gave their keys")


def examine_bearers(found: Examination, configured: Mapping[str, JobConfig]) -> None:
    """Name the jobs that a static token ticks."""
    weak = sorted(job.name for job in configured.values() if job.bearer is not None)
    if weak:
        found.note(
            "bearers",
            Status.WARN,
            f"{some(weak)}: whoever sees the token can tick, for as long as it is configured; use oidc or secrets "
            "where the scheduler can",
        )


async def examine_ticks(found: Examination, configured: Mapping[str, JobConfig], url: str) -> None:
    """Whether a job's ticks have for long only repeated a run that they had claimed before."""
    if not configured:
        return
    db = Database(url, pool_size=1)
    try:
        async with db.begin() as tx:
            frozen = await jobs.frozen(tx, configured.keys())
    finally:
        await db.close()
    if frozen:
        told = [f"{name} since {since:%Y-%m-%d %H:%M} UTC" for name, since in frozen.items()]
        found.note(
            "ticks",
            Status.WARN,
            f"every tick only repeats a run of long ago, so nothing new runs ({some(told, between='; ')}): let the "
            "scheduler make runId, cutoffIso and signature anew for each slot, or send a token in their place "
            "([jobs.X.oidc]); docs/ticks.md has recipes",
        )
    else:
        found.note("ticks", Status.OK, "no job's ticks repeat a run of long ago")
