"""How the doctor's questions are answered."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from service.domain.errors import TocsinError

_NAMED = 5


class Status(StrEnum):
    """How a question was answered; only `fail` makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, and what to do about it."""

    check: str
    status: Status
    detail: str


@dataclass(slots=True)
class Examination:
    """Findings as they come up."""

    findings: list[Finding] = field(default_factory=list[Finding])

    def note(self, check: str, status: Status, detail: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(check, status, detail))

    @contextmanager
    def question(self, check: str) -> Iterator[None]:
        """A refusal inside is a failed check, and the questions after it are still asked."""
        try:
            yield
        except TocsinError as refusal:
            self.note(check, Status.FAIL, refusal.detail)


def some(names: Sequence[str], most: int = _NAMED, between: str = ", ") -> str:
    """The first of many, with a sign that there are more."""
    return between.join(names[:most]) + (" …" if len(names) > most else "")


def many(count: int, thing: str) -> str:
    """So many of a thing, whose plural ends in s."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
