"""What happened during a drill, in order."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened; `seconds` since the drill began."""

    at: datetime
    seconds: float
    sequence: str
    what: str


@dataclass(slots=True)
class Timeline:
    """Lines in the order in which they were noted, each shown as it comes."""

    show: Callable[[Line], None]
    lines: list[Line] = field(default_factory=list[Line])
    _began: float = field(default_factory=time.monotonic)

    def note(self, sequence: str, what: str) -> None:
        """Add a line."""
        line = Line(datetime.now(UTC), time.monotonic() - self._began, sequence, what)
        self.lines.append(line)
        self.show(line)
