"""Which run a tick asks for that signs nothing: by the slot that its scheduler names, or by the minute it came in."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from service.domain.timestamps import format_rfc3339

AHEAD: Final = timedelta(seconds=5)
"""A slot that is further ahead has not come: whoever names it already starts a run by hand.

Cloud Scheduler's "force run" carries the next slot's time. Were it taken for that slot, the real one would be a
duplicate of it, with nothing left to do.
"""


@dataclass(frozen=True, slots=True)
class Knock:
    """The run that is asked for. Without a cutoff it is the time of the first claim, by the database's clock."""

    run_id: str
    cutoff: datetime | None = None


def of_slot(source: str, slot: datetime, now: datetime, ahead: timedelta = AHEAD) -> Knock:
    """The run of a slot; of one that has not come, a run by hand. No cutoff of the job may be later than `ahead`."""
    return by_hand(source, now) if slot > now + min(AHEAD, ahead) else Knock(f"{source}@{format_rfc3339(slot)}", slot)


def by_hand(source: str, now: datetime) -> Knock:
    """A run of its own, the same one for each repetition within the minute."""
    return Knock(f"{source}@manual-{now:%Y-%m-%dT%H:%MZ}")
