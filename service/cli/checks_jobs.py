"""What `tocsin doctor` looks at in jobs: whether ticks still claim runs, who may tick, whether issuers can be asked."""

from collections.abc import Mapping

from service.cli.findings import Examination, Status, some
from service.domain.job import JobConfig
from service.flow.egress import Blocked, Egress
from service.flow.resolver import Resolver
from service.settings import Settings
from service.store import jobs
from service.store.database import Database

_LOOK_UP_SECONDS = 2.0


async def examine_issuers(found: Examination, configured: Mapping[str, JobConfig], settings: Settings) -> None:
    """Whether the guard lets the issuers' keys be fetched; nothing is fetched here."""
    wanted = {job.oidc.jwks_uri or job.oidc.issuer for job in configured.values() if job.oidc is not None}
    if not wanted:
        return
    egress = Egress(settings.egress_allow, settings.egress_deny, Resolver(timeout_seconds=_LOOK_UP_SECONDS))
    refused = []
    for url in sorted(wanted):
        try:
            await egress.vet(url)
        except Blocked as blocked:
            refused.append(f"{url}: {blocked}")
    await egress.close()
    if refused:
        mend = "let them through with TOCSIN_EGRESS_ALLOW, or ticks with their tokens are answered 503"
        found.note("issuers", Status.WARN, f"the guard refuses {some(refused, between='; ')}: {mend}")
    else:
        found.note("issuers", Status.OK, f"the guard refuses none of {len(wanted)}")


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
