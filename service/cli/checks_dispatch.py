"""What `tocsin doctor` looks at in dispatch: whether anything is sent at all."""

from service.cli.findings import Examination, Status
from service.cli.standstill import in_words
from service.domain.timestamps import format_rfc3339
from service.store import dispatching
from service.store.database import Database


async def examine_dispatch(found: Examination, url: str) -> None:
    """Whether all dispatch is paused, since when, by whom and why."""
    db = Database(url, pool_size=1)
    try:
        async with db.begin() as tx:
            standing = await dispatching.standing(tx)
    finally:
        await db.close()
    if standing.paused and standing.since:
        since = format_rfc3339(standing.since)
        found.note("dispatch", Status.WARN, in_words(since, standing.paused_by, standing.reason))
    else:
        found.note("dispatch", Status.OK, "it is not paused")
