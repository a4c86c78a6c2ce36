"""What stored subscribers need and the settings do not give: start-up warns of it, the doctor tells all of it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from time import monotonic

import structlog

from service.domain import urls
from service.domain.model import Mode
from service.domain.subscriber import Wanted
from service.domain.targets import Network, refusal
from service.store import subscribers
from service.store.database import Database
from service.store.vault import Vault
from service.store.views import Page

log = structlog.get_logger()

NAMED = 20
"""So many subscribers are warned of at start-up."""
START_SECONDS = 2.0
"""Start-up looks at subscribers for this long at most; who has more of them has the doctor."""

READABLE_AGAIN = (
    "put the key that sealed them back into TOCSIN_ENCRYPTION_KEYS, or rotate the secrets with grace 0 and PUT the "
    "headers anew"
)
"""The mend of secrets and headers that cannot be opened."""
CALLABLE_AGAIN = (
    "set TOCSIN_EGRESS_ALLOW as it was when they were registered, or pause them: their deliveries end as rejected"
)
"""The mend of addresses that the guard refuses now."""

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Examined:
    """One live subscriber; `unreadable` says that its secret or a header of its cannot be opened."""

    wanted: Wanted
    unreadable: bool

    @property
    def sends(self) -> bool:
        """Whether anything goes out to it; a shadow calls nobody."""
        return self.wanted.mode is Mode.LIVE

    def literal_fault(self, allow: Sequence[Network], deny: Sequence[Network]) -> str | None:
        """Why the address that its URL holds is refused; None where it is not, or where the URL holds a name."""
        address = urls.literal(urls.written_host(self.wanted.url))
        return refusal(address, allow, deny) if address and self.sends else None


async def examine(db: Database, vault: Vault | None) -> AsyncIterator[list[Examined]]:
    """Every live subscriber, newest first, page by page; without a vault nothing is opened, or found unreadable."""
    after: int | None = None
    while True:
        async with db.begin() as tx:
            page = await subscribers.listed(tx, Page(_PAGE, after))
            opened = await subscribers.destinations(tx, [each.row for each in page], vault) if page and vault else []
        unreadable = {destination.row for destination in opened if destination.unreadable}
        yield [Examined(record.wanted, record.row in unreadable) for record in page]
        if len(page) < _PAGE:
            return
        after = page[-1].row


async def warn_at_start(db: Database, vault: Vault, allow: Sequence[Network], deny: Sequence[Network]) -> None:
    """Warn of the first subscribers whose deliveries cannot be sent with these settings."""
    until = monotonic() + START_SECONDS
    unreadable: list[str] = []
    refused: dict[str, str] = {}
    async for page in examine(db, vault):
        unreadable += [each.wanted.id for each in page if each.unreadable]
        faults = {each.wanted.id: each.literal_fault(allow, deny) for each in page}
        refused |= {slug: fault for slug, fault in faults.items() if fault}
        if monotonic() > until:
            log.info("subscribers.not_all_examined", mend="`tocsin doctor` looks at all of them")
            break
    if unreadable:
        log.warning(
            "subscribers.unreadable",
            subscribers=unreadable[:NAMED],
            count=len(unreadable),
            effect="their deliveries wait",
            mend=READABLE_AGAIN,
        )
    for slug, fault in list(refused.items())[:NAMED]:
        log.warning("subscriber.address_refused", subscriber=slug, because=fault, mend=CALLABLE_AGAIN)
    if len(refused) > NAMED:
        log.warning("subscriber.addresses_refused", more=len(refused) - NAMED, mend=CALLABLE_AGAIN)
