"""What a retention job keeps for how long: its options, checked, and the moments that a run of it counts back to."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from service.domain.durations import parse_duration, written
from service.domain.errors import ConfigurationError
from service.domain.identifiers import is_tenant
from service.domain.job import JobConfig

SOURCE: Final = "retention"
"""What `source` says in a job of this kind."""
SHORTEST_SECONDS: Final = 3_600
LONGEST_SECONDS: Final = 36_500 * 86_400
"""A hundred years: whoever wants to keep for ever has no retention job."""
SHARE_FROM: Final = 1_000
"""Of fewer deliveries any share may go."""

_AGES: Final = {"payloads_after": "30d", "deliveries_after": "90d", "keys_after": "400d"}
_OPTIONS: Final = (*_AGES, "dry_run", "max_share", "erase_tenants")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of one retention job; ages are seconds, each at least as long as the one before."""

    payloads_after: int
    deliveries_after: int
    keys_after: int
    dry_run: bool
    max_share: float
    """Of all deliveries, the part that one run may find too old before it refuses; 1 allows all of them."""
    erase_tenants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Boundaries:
    """What is finished before these moments has had its time."""

    payloads: datetime
    deliveries: datetime
    keys: datetime


def boundaries(rules: Rules, cutoff: datetime, now: datetime) -> Boundaries:
    """Count back from the cutoff; one in the future makes nothing old before its time."""
    since = min(cutoff, now)
    ages = (rules.payloads_after, rules.deliveries_after, rules.keys_after)
    return Boundaries(*(since - timedelta(seconds=age) for age in ages))


def first_id(moment: datetime) -> UUID:
    """The smallest UUIDv7 of that millisecond: all that were made earlier are smaller. Source: RFC 9562, 5.7."""
    milliseconds = max((moment - _EPOCH) // timedelta(milliseconds=1), 0)
    return UUID(int=milliseconds << 80)


def rules_of(job: JobConfig) -> Rules:
    """The rules that a job's options state.

    Raises:
        ConfigurationError: an option is unknown or cannot be meant; the message says how to write it.

    """
    place, given = f'jobs."{job.name}".options', job.options
    for name in given:
        if name not in _OPTIONS:
            raise ConfigurationError(f"{place}.{name} is not an option of retention: use {', '.join(_OPTIONS)}")
    ages = {name: _age(f"{place}.{name}", given.get(name, default)) for name, default in _AGES.items()}
    _check_order(place, ages)
    return Rules(
        **ages,
        dry_run=_flag(f"{place}.dry_run", given.get("dry_run", False)),
        max_share=_share(f"{place}.max_share", given.get("max_share", 0.5)),
        erase_tenants=_tenants(f"{place}.erase_tenants", given.get("erase_tenants", [])),
    )


def check_together(jobs: Mapping[str, JobConfig]) -> None:
    """A run that is forgotten while its tick would still be accepted would be done a second time.

    Raises:
        ConfigurationError: a retention job is malformed, or forgets runs sooner than some job's `max_cutoff_age`.

    """
    oldest = max(jobs.values(), key=lambda job: job.max_cutoff_age, default=None)
    for job in jobs.values():
        if oldest is None or job.source != SOURCE or rules_of(job).keys_after > oldest.max_cutoff_age:
            continue
        raise ConfigurationError(
            f'jobs."{job.name}".options.keys_after must be longer than jobs."{oldest.name}".max_cutoff_age '
            f"({written(oldest.max_cutoff_age)}), or an old tick could start its run anew: raise the one, or lower "
            "the other"
        )


def _age(place: str, value: object) -> int:
    seconds = parse_duration(value) if isinstance(value, str) else None
    if seconds is None:
        raise ConfigurationError(f'{place} must be text with a unit of s, m, h or d, such as "30d"')
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        shortest, longest = written(SHORTEST_SECONDS), written(LONGEST_SECONDS)
        raise ConfigurationError(f'{place} must be from "{shortest}" to "{longest}"')
    return seconds


def _check_order(place: str, ages: Mapping[str, int]) -> None:
    for shorter, longer in zip(ages, list(ages)[1:], strict=False):
        if ages[shorter] > ages[longer]:
            raise ConfigurationError(
                f"{place}.{shorter} ({written(ages[shorter])}) is longer than {longer} ({written(ages[longer])}): "
                f"lower the one, or raise the other"
            )


def _flag(place: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{place} must be true or false")
    return value


def _share(place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigurationError(f"{place} must be a number above 0 and up to 1, such as 0.5; 1 allows everything")
    return float(value)


def _tenants(place: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and is_tenant(each) for each in value):
        raise ConfigurationError(f'{place} must be a list of tenant ids, such as ["acme"]')
    return tuple(sorted(set(value)))
