"""How fast the backlog moves, and when it will be gone: arithmetic on what the last minutes brought."""

from dataclasses import dataclass
from enum import StrEnum


class Stalled(StrEnum):
    """Why there is no time at which the backlog will be gone."""

    DISPATCH_PAUSED = "dispatch-paused"
    """An operator paused all dispatch."""
    NO_HEADROOM = "no-headroom"
    """No more is finished than arrives."""
    NO_DATA = "no-data"
    """There is no whole minute to judge by yet."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Rates are a minute's; `retry_amplification` is attempts for each delivery that ended, None where none did."""

    arrivals_per_minute: float
    completions_per_minute: float
    retry_amplification: float | None
    known: bool
    """False where there is no whole minute to judge by: then the rates are 0."""

    @classmethod
    def of(cls, minutes: int, arrived: int, ended: int, attempts: int) -> "Pace":
        """The pace of so many whole minutes."""
        if minutes <= 0:
            return cls(0.0, 0.0, None, known=False)
        return cls(arrived / minutes, ended / minutes, attempts / ended if ended else None, known=True)

    @property
    def headroom_per_minute(self) -> float:
        """How many more are finished than arrive; negative while the backlog grows."""
        return self.completions_per_minute - self.arrivals_per_minute

    def stalled(self, due: int, *, paused: bool) -> Stalled | None:
        """Why the backlog will never be gone; None where it will, or where there is none."""
        if paused:
            return Stalled.DISPATCH_PAUSED
        if due == 0:
            return None
        if not self.known:
            return Stalled.NO_DATA
        return Stalled.NO_HEADROOM if self.headroom_per_minute <= 0 else None

    def drain_seconds(self, due: int, *, paused: bool) -> float | None:
        """When what is due will be gone at this pace; 0 where nothing is due, None for never."""
        if self.stalled(due, paused=paused):
            return None
        return 0.0 if due == 0 else due / self.headroom_per_minute * 60
