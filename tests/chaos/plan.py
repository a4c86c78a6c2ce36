"""What a chaos run does, and in which order: all of it is drawn from the seed, so that a run can be done again.

What a seed cannot decide is how the processes of one machine are interleaved: the same plan meets other moments.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from tests.chaos.cast import CAST, NARROW, NARROW_EVERY, WIDE

EventName = tuple[str, str, int]
"""What an event is called on every side: type, subject, version."""
Span = tuple[float, float]
"""From when until when, in seconds since 1970."""

LEASE_SECONDS = 2.0
WORKERS = 2
SUBJECTS = 40
"""Events are about so many things, so that those that keep an order have something to keep."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a run is; `deliveries` is the least number of them."""

    deliveries: int
    worker_kills: int
    api_kills: int
    postgres_kills: int


class Blow(StrEnum):
    """What is done to the processes."""

    WORKER_KILL = "worker killed"
    WORKER_STOP = "worker stopped beyond its leases"
    API_KILL = "API killed"
    API_STOP = "API stopped for a while"
    POSTGRES_KILL = "PostgreSQL killed"
    TERMINATE = "every connection terminated"
    READ_ONLY = "PostgreSQL read-only for a while"
    CROWD = "every connection slot taken for a while"
    STALL = "the deliveries locked for a while"


@dataclass(frozen=True, slots=True)
class Step:
    """One blow: `after` so many seconds of peace, for `seconds` where it lasts, to that `worker` where it is one."""

    blow: Blow
    after: float
    seconds: float
    worker: int


def steps(seed: int, sizes: Sizes) -> list[Step]:
    """The blows of a run, shuffled."""
    draw = random.Random(f"{seed}/blows")  # noqa: S311 - chance for a plan, not for a secret
    blows = [blow for blow, count in _counts(sizes).items() for _ in range(count)]
    draw.shuffle(blows)
    return [_step(blow, draw) for blow in blows]


def _counts(sizes: Sizes) -> dict[Blow, int]:
    some = max(1, sizes.postgres_kills // 2)
    return {
        Blow.WORKER_KILL: sizes.worker_kills,
        Blow.WORKER_STOP: max(1, sizes.worker_kills // 5),
        Blow.API_KILL: sizes.api_kills,
        Blow.API_STOP: max(1, sizes.api_kills // 2),
        Blow.POSTGRES_KILL: sizes.postgres_kills,
        **dict.fromkeys((Blow.TERMINATE, Blow.READ_ONLY, Blow.CROWD, Blow.STALL), some),
    }


def _step(blow: Blow, draw: random.Random) -> Step:
    least = LEASE_SECONDS + 0.5 if blow is Blow.WORKER_STOP else 0.2
    return Step(blow, draw.uniform(0, 0.5), least + draw.uniform(0, 1.5), draw.randrange(WORKERS))


@dataclass(frozen=True, slots=True)
class Planned:
    """An event that is published, or found by a run (`tick`); its type, subject and version are its name."""

    number: int
    type: str
    tick: bool

    @property
    def subject(self) -> str:
        """What it is about."""
        return f"thing-{self.number % SUBJECTS}"

    @property
    def name(self) -> EventName:
        """What it is called on every side."""
        return self.type, self.subject, self.number


def events(seed: int, sizes: Sizes) -> Sequence[Planned]:
    """Events enough for that many deliveries; more than half are published, the others found by runs."""
    draw = random.Random(f"{seed}/events")  # noqa: S311
    return list(_enough(sizes.deliveries, lambda: draw.random() < 0.5))


def _enough(deliveries: int, heads: Callable[[], bool]) -> Iterator[Planned]:
    made = number = 0
    while made < deliveries:
        number += 1
        narrow = number % NARROW_EVERY == 0
        type_ = NARROW if narrow else WIDE
        made += sum(type_ in player.event_types for player in CAST)
        yield Planned(number, type_, tick=heads() and not narrow)


def chance(*names: object) -> float:
    """A number from 0 to 1 that depends on nothing but these names, however the processes are interleaved."""
    digest = blake2b("/".join(map(str, names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
