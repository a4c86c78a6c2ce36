"""What a subscriber's configuration must pass before it is stored; every fault is named by its pointer, none echoed."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.domain import identifiers, signing
from service.domain.errors import Invalid, Problem
from service.domain.headers import header_faults, mask_faults
from service.domain.subscriber import MAX_EVENT_TYPES, Wanted, bound_faults
from service.flow.egress import Blocked, Egress, check_url


@dataclass(frozen=True, slots=True)
class Vetting:
    """Judges what operators ask for, by the guard of addresses and the time that an attempt may take."""

    egress: Egress
    longest_attempt_seconds: float

    async def check(self, wanted: Wanted, secret: str | None) -> None:
        """Look at every field, and last, when all else is right, at where the URL leads.

        The address is advisory here: it is judged again whenever it is dialled.

        Raises:
            Invalid: with a problem for each fault.

        """
        faults = [*_faults(wanted), *bound_faults(wanted, self.longest_attempt_seconds), *_secret_faults(secret)]
        if faults:
            raise Invalid(*faults)
        try:
            await self.egress.vet(wanted.url)
        except Blocked as blocked:
            raise Invalid(Problem("/url", str(blocked))) from None


def _faults(wanted: Wanted) -> Iterator[Problem]:
    if not identifiers.is_subscriber_slug(wanted.id):
        yield Problem("/id", "must be 1 to 63 of a-z, 0-9, hyphen and underscore, and begin with a letter or digit")
    if not identifiers.is_tenant(wanted.tenant_id):
        yield Problem("/tenantId", "must be 1 to 100 letters, digits, dots, hyphens and underscores")
    try:
        check_url(wanted.url)
    except ValueError as fault:
        yield Problem("/url", str(fault))
    yield from _event_type_faults(wanted.event_types)
    yield from header_faults(wanted.headers)
    yield from mask_faults(wanted.headers)


def _event_type_faults(event_types: tuple[str, ...]) -> Iterator[Problem]:
    if not 1 <= len(event_types) <= MAX_EVENT_TYPES:
        yield Problem("/eventTypes", f"must have 1 to {MAX_EVENT_TYPES} entries; `*` stands for all")
        return
    for index, pattern in enumerate(event_types):
        if not identifiers.is_pattern(pattern):
            detail = "must be `*`, an event type such as `shipment.expired`, or its beginning, such as `shipment.*`"
            yield Problem(f"/eventTypes/{index}", detail)
        elif pattern in event_types[:index]:
            yield Problem(f"/eventTypes/{index}", "appears more than once")


def _secret_faults(secret: str | None) -> Iterator[Problem]:
    if secret is None:
        return
    try:
        signing.decode_secret(secret)
    except ValueError as fault:
        yield Problem("/secret", str(fault))
