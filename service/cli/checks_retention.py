"""What `tocsin doctor` looks at in retention jobs: whether their last run deleted what it could."""

from collections.abc import Mapping

from service.cli.findings import Examination, Status, some
from service.domain.job import JobConfig
from service.domain.model import RunState
from service.domain.retention import SOURCE
from service.sources.retention import Progress
from service.store import views
from service.store.database import Database
from service.store.views import RunView


async def examine_retention(found: Examination, configured: Mapping[str, JobConfig], url: str) -> None:
    """Name the retention jobs whose last run failed, or could have deleted something and deleted nothing."""
    names = sorted(job.name for job in configured.values() if job.source == SOURCE)
    if not names:
        return
    db = Database(url, pool_size=1)
    try:
        async with db.begin() as tx:
            standings = await views.jobs(tx, names)
    finally:
        await db.close()
    doubts = [f"{each.name} {doubt}" for each in standings if (doubt := _doubt(each.last_run))]
    if doubts:
        found.note("retention", Status.WARN, some(doubts, between="; "))
    else:
        found.note("retention", Status.OK, f"nothing is wrong with the last runs of {some(names)}")


def _doubt(run: RunView | None) -> str | None:
    if run is None:
        return "has never run, so that nothing is ever deleted: let a scheduler tick it"
    if run.state is RunState.FAILED:
        return f"failed ({run.error}): mend that, then `tocsin run retry {run.id}`"
    idle = Progress.read(run.progress).idle if run.state is RunState.COMPLETED and run.progress else []
    if idle:
        kept = ", ".join(idle)
        return f"could have deleted {kept} and deleted none: something held all of them locked; see docs/retention.md"
    return None
