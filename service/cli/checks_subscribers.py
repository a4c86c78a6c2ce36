"""What `tocsin doctor` looks at in stored subscribers: secrets, addresses, patience and timeouts."""

import asyncio
from collections.abc import Iterator, Sequence

from service import keyfiles
from service.cli.findings import Examination, Status, many, some
from service.domain import patience, urls
from service.domain.leases import shortest_lease
from service.domain.model import Policy
from service.domain.subscriber import DEFAULT_TIMEOUT_SECONDS
from service.flow.egress import Blocked, Egress
from service.flow.resealing import Progress, reseal
from service.flow.resolver import Resolver
from service.flow.survey import CALLABLE_AGAIN, READABLE_AGAIN, Examined, examine
from service.settings import Settings
from service.store import subscribers
from service.store.database import Database
from service.store.vault import Vault

_LOOK_UP_SECONDS = 2.0
_NAMES = 200
_NAMES_AT_ONCE = 50
"""Names that are looked up, in all and at once: the doctor must come to an end where no name server answers."""

_AN_HOUR = Policy(max_attempts=30, backoff_cap_seconds=3600)
"""What is recommended for outages of hours; docs/outcomes.md has the table."""


async def examine_subscribers(found: Examination, settings: Settings, url: str) -> None:
    """Whether what is stored about subscribers works with these settings."""
    vault = _vault(found, settings)
    db = Database(url, pool_size=1)
    try:
        everyone = [each async for page in examine(db, vault) for each in page]
        left = [each async for each in reseal(db, vault, actor="", dry_run=True)][-1] if vault else Progress(0)
        async with db.begin() as tx:
            longest = await subscribers.longest_timeout(tx)
    finally:
        await db.close()
    if vault is not None:
        found.note("secrets", *_openable(everyone))
        found.note("encryption", *_resealed(left))
    found.note("addresses", *await _callable(everyone, settings))
    found.note("retries", *_patient(everyone))
    found.note("leases", *_fitting(longest, settings))


def _vault(found: Examination, settings: Settings) -> Vault | None:
    """The vault of the configured or generated keys; generated ones are read here, never made."""
    generated = settings.data_dir / keyfiles.ENCRYPTION_KEY_FILE
    if not settings.encryption_keys and not generated.exists():
        found.note("secrets", Status.FAIL, f"{generated} is gone: restore it, stored secrets cannot be opened without")
        return None
    completed = settings if settings.encryption_keys else keyfiles.complete(settings)
    return Vault([key.get_secret_value() for key in completed.encryption_keys])


def _openable(everyone: Sequence[Examined]) -> tuple[Status, str]:
    closed = [each.wanted.id for each in everyone if each.unreadable]
    if not closed:
        return Status.OK, f"those of {many(len(everyone), 'subscriber')} can be opened"
    return Status.FAIL, (
        f"secrets or headers of {len(closed)} of {many(len(everyone), 'subscriber')} cannot be opened "
        f"({some(closed)}), so their deliveries wait: {READABLE_AGAIN}"
    )


def _resealed(looked: Progress) -> tuple[Status, str]:
    """Whether the first encryption key is the only one that is needed."""
    if looked.unreadable:
        return Status.WARN, (
            f"cannot be told while {many(looked.unreadable, 'sealed value')} can be opened with none of "
            f"TOCSIN_ENCRYPTION_KEYS: {READABLE_AGAIN}"
        )
    if not looked.older:
        return Status.OK, "nothing is left that another than the first of TOCSIN_ENCRYPTION_KEYS sealed"
    return Status.WARN, (
        f"{looked.older} secrets and header values are sealed with another than the first of TOCSIN_ENCRYPTION_KEYS: "
        "run `tocsin reseal`, and take the older keys away a day later"
    )


async def _callable(everyone: Sequence[Examined], settings: Settings) -> tuple[Status, str]:
    """Whether the guard lets the subscribers' addresses through, with the settings of this shell."""
    allow, deny = settings.egress_allow, settings.egress_deny
    faults = {each.wanted.id: each.literal_fault(allow, deny) for each in everyone}
    named = _by_origin(everyone)
    looked_up = dict(list(named.items())[:_NAMES])
    for url, fault in (await _faults_of_names(list(looked_up), settings)).items():
        faults |= dict.fromkeys(looked_up[url], fault)
    refused = [f"{slug}: {fault}" for slug, fault in faults.items() if fault]
    unseen = f" ({len(named) - _NAMES} more names were not looked up)" if len(named) > _NAMES else ""
    if not refused:
        return Status.OK, f"the guard refuses no address of {many(len(everyone), 'subscriber')}{unseen}"
    return Status.WARN, (
        f"the guard refuses the addresses of {len(refused)} of {many(len(everyone), 'subscriber')} with the settings "
        f"of this shell ({some(refused, between='; ')}): {CALLABLE_AGAIN}{unseen}"
    )


def _by_origin(everyone: Sequence[Examined]) -> dict[str, list[str]]:
    """One URL of each origin that has a name for a host, with the subscribers there."""
    first: dict[str, str] = {}
    slugs: dict[str, list[str]] = {}
    for each in everyone:
        url = each.wanted.url
        if each.sends and not urls.literal(urls.written_host(url)):
            slugs.setdefault(first.setdefault(urls.origin(url), url), []).append(each.wanted.id)
    return slugs


async def _faults_of_names(named: Sequence[str], settings: Settings) -> dict[str, str]:
    """What the guard says to these URLs; a name that cannot be looked up now is no fault."""
    egress = Egress(settings.egress_allow, settings.egress_deny, Resolver(timeout_seconds=_LOOK_UP_SECONDS))
    faults: dict[str, str] = {}

    async def vet(url: str) -> None:
        try:
            await egress.vet(url)
        except Blocked as blocked:
            faults[url] = str(blocked)

    for at in range(0, len(named), _NAMES_AT_ONCE):
        await asyncio.gather(*(vet(url) for url in named[at : at + _NAMES_AT_ONCE]))
    await egress.close()
    return faults


def _patient(everyone: Sequence[Examined]) -> tuple[Status, str]:
    """Whether the attempts of each subscriber last for a fair part of its deadline."""
    hasty = list(_hasty(everyone))
    if not hasty:
        return Status.OK, "every subscriber is tried for a fair part of its deadline"
    lasts = patience.in_words(patience.mean_seconds(_AN_HOUR))
    return Status.WARN, (
        f"while they are down, {len(hasty)} of {many(len(everyone), 'subscriber')} will be given up long before the "
        f"deadline ({some(hasty, most=3, between='; ')}): raise maxAttempts and backoffCapSeconds "
        f"({_AN_HOUR.max_attempts} and {_AN_HOUR.backoff_cap_seconds:g} last about {lasts}), or lower deadlineSeconds "
        "where that is meant"
    )


def _hasty(everyone: Sequence[Examined]) -> Iterator[str]:
    for each in everyone:
        wanted = each.wanted
        policy = Policy(wanted.idempotent, wanted.max_attempts, wanted.backoff_base_seconds, wanted.backoff_cap_seconds)
        if each.sends and patience.ends_far_before(policy, wanted.deadline_seconds):
            lasts, deadline = patience.mean_seconds(policy), wanted.deadline_seconds
            yield f"{wanted.id} after about {patience.in_words(lasts)} of {patience.in_words(deadline)}"


def _fitting(longest: float, settings: Settings) -> tuple[Status, str]:
    """Whether each attempt ends before its lease, also those of a subscriber that names no timeout."""
    fits = settings.longest_attempt_seconds
    if longest > fits:
        return Status.FAIL, (
            f"TOCSIN_LEASE_SECONDS ({settings.lease_seconds:g}) is too short for a subscriber whose timeoutSeconds is "
            f"{longest:g}: raise it, or lower the subscriber's timeout"
        )
    if fits < DEFAULT_TIMEOUT_SECONDS:
        return Status.WARN, (
            f"TOCSIN_LEASE_SECONDS ({settings.lease_seconds:g}) is too short for the default timeoutSeconds of "
            f"{DEFAULT_TIMEOUT_SECONDS:g}, so a subscriber without its own is refused: give each a timeoutSeconds up "
            f"to {fits:g}, or raise the lease to {shortest_lease(DEFAULT_TIMEOUT_SECONDS):g}"
        )
    return Status.OK, f"{settings.lease_seconds:g} s, the longest attempt is {longest:g} s"
