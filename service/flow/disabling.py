"""What is written down when Tocsin disables a subscriber by itself: who would look for the reason finds it."""

from collections.abc import Sequence

import structlog

from service.flow import operational
from service.store import audit
from service.store.database import Tx

log = structlog.get_logger()


async def note(tx: Tx, slugs: Sequence[str], reason: str) -> None:
    """Write an audit line in the name of `tocsin`, a warning, and an event for who listens, for each of these."""
    await operational.subscribers_disabled(tx, slugs, reason)
    for slug in slugs:
        await audit.write(tx, actor="tocsin", action="subscriber.disabled", object=f"subscriber:{slug}", reason=reason)
        log.warning("subscriber.disabled", subscriber=slug, reason=reason)
