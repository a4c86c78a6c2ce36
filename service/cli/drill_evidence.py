"""What a sequence of the drill has to prove and how: checks that cite rows, and the verdict they add up to."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from service.cli.drill_receiver import Request

Delivery = Mapping[str, Any]
"""A delivery in full, as the API shows it."""

_SURELY_RECEIVED = frozenset({"delivered", "throttled", "server_error", "rejected", "timeout", "disconnected"})
"""Outcomes of attempts that a receiver on this machine must have seen; after `in_doubt` nobody knows."""


class Ruling(StrEnum):
    """How a sequence ended."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_RUN = "not run"


class NotRun(Exception):
    """A sequence cannot be run here, or did not reach what it was to show; the message names the mend."""


@dataclass(frozen=True, slots=True)
class Check:
    """One statement about what was seen, whether it is true, and the rows that show it."""

    promise: str
    held: bool
    rows: tuple[str, ...]


class Overdue(Exception):
    """Something that was promised did not come about in time."""

    def __init__(self, check: Check) -> None:
        super().__init__(check.promise)
        self.check = check


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one sequence; `said` is the mend of what was not run, else the statement that decided."""

    sequence: str
    promise: str
    ruling: Ruling
    said: str
    checks: tuple[Check, ...] = ()

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows that decided: those of the first broken check, else all that the checks cite, each once."""
        chosen = [check for check in self.checks if not check.held][:1] or self.checks
        return tuple(dict.fromkeys(row for check in chosen for row in check.rows))


def judged(sequence: str, promise: str, checks: Sequence[Check]) -> Verdict:
    """The verdict on a sequence that was played to its end; a promise is kept only where rows prove it."""
    for check in checks:
        if not check.held:
            return Verdict(sequence, promise, Ruling.BROKEN, f"not so: {check.promise}", tuple(checks))
    if not any(check.rows for check in checks):
        return Verdict(sequence, promise, Ruling.NOT_RUN, "no row was found that proves it", tuple(checks))
    return Verdict(sequence, promise, Ruling.KEPT, "; ".join(check.promise for check in checks), tuple(checks))


def check(promise: str, held: bool, *deliveries: Delivery) -> Check:
    """A statement about deliveries, which it cites with their attempts."""
    return Check(promise, held, tuple(cite(each) for each in deliveries))


def cite(delivery: Delivery) -> str:
    """A delivery's id, where it stands, and its attempts by number: `dlv_… delivered: 1 disconnected, 2 delivered`."""
    attempts = ", ".join(_attempt(each) for each in delivery.get("attempts", ()))
    held = f", held by {delivery['heldBy']}" if delivery.get("heldBy") else ""
    return f"{delivery['id']} {delivery['state']}{held}" + (f": {attempts}" if attempts else "")


def _attempt(attempt: Mapping[str, Any]) -> str:
    generation = f" (generation {attempt['generation']})" if attempt["generation"] > 1 else ""
    return f"{attempt['number']} {attempt['outcome']}{' (late)' if attempt['late'] else ''}{generation}"


def outcomes(delivery: Delivery) -> list[str]:
    """The outcomes of a delivery's attempts, in their order."""
    return [attempt["outcome"] for attempt in delivery["attempts"]]


def both_sides(requests: Sequence[Request], deliveries: Collection[Delivery]) -> list[Check]:
    """What holds in every sequence: the receiver's own record and Tocsin's rows tell of the same requests."""
    rows = tuple(cite(each) for each in deliveries)
    written = {at for each in deliveries for at in _numbers(each)}
    seen = Counter((request.key, request.generation, request.attempt) for request in requests)
    sent = {at for each in deliveries for at in _numbers(each, _SURELY_RECEIVED)}
    bodies = {each["key"]: each["payloadSha256"] for each in deliveries}
    unlike = [request for request in requests if request.fault or bodies.get(request.key) != request.sha256]
    return [
        _compared("each request that the receiver saw has its attempt on record", seen.keys() - written, rows),
        _compared("each attempt on record that was answered was seen by the receiver", sent - seen.keys(), rows),
        _compared("no attempt was sent twice", [at for at, count in seen.items() if count > 1], rows),
        Check(
            "each request was signed right and had the stored bytes",
            not unlike,
            tuple(f"{request.key}: {request.fault or 'other bytes'}" for request in unlike) or rows,
        ),
    ]


def _numbers(delivery: Delivery, among: Collection[str] = ()) -> Iterable[tuple[str, int, int]]:
    for attempt in delivery["attempts"]:
        if not among or attempt["outcome"] in among:
            yield delivery["key"], attempt["generation"], attempt["number"]


def _compared(promise: str, wrong: Collection[tuple[str, int, int]], rows: tuple[str, ...]) -> Check:
    """A check that is broken by each of `wrong`, which it then cites."""
    cited = tuple(f"{key}: generation {generation}, attempt {number}" for key, generation, number in sorted(wrong))
    return Check(promise, not wrong, cited or rows)
