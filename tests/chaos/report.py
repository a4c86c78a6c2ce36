"""How a chaos run is told: a table of verdicts, the numbers behind it, and how to run it again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.chaos.invariants import Verdict
from tests.chaos.plan import Sizes
from tests.chaos.record import Record


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    sizes: Sizes
    seconds: float
    record: Record
    verdicts: Sequence[Verdict]
    deeds: Mapping[str, int]
    """What the operators did."""

    @property
    def held(self) -> bool:
        """Whether every promise was kept."""
        return all(verdict.held for verdict in self.verdicts)


def told(outcome: Outcome) -> str:
    """The whole report as text."""
    lines: list[str] = []
    for verdict in outcome.verdicts:
        lines.append(f"{'kept' if verdict.held else 'BROKEN':<7} {verdict.promise} ({verdict.looked_at:,})")
        lines += [f"        {example}" for example in verdict.examples]
        if verdict.broken > len(verdict.examples):
            lines.append(f"        … {verdict.broken:,} in all")
    return "\n".join([*lines, "", *_numbers(outcome), "", f"again: {again(outcome.seed, outcome.sizes)}"])


def again(seed: int, sizes: Sizes) -> str:
    """The command that does the same run."""
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in asdict(sizes).items())
    return f"make chaos ARGS='--seed {seed} {options}'"


def _numbers(outcome: Outcome) -> list[str]:
    record = outcome.record
    requests, outcomes = len(record.requests), Counter(attempt.outcome for attempt in record.attempts)
    skewed = sum(request.skewed for request in record.requests)
    return [
        f"seconds: {outcome.seconds:.0f}",
        f"blows: {_counted(Counter(trouble.what for trouble in record.troubles))}",
        f"operators: {_counted(outcome.deeds)}",
        f"events: {len(record.events):,} in {len(record.runs)} runs and by publishing",
        f"deliveries: {len(record.deliveries):,}: {_counted(Counter(each.state for each in record.deliveries))}",
        f"attempts: {len(record.attempts):,}: {_counted(outcomes)}",
        f"requests: {requests:,} for {len(record.requests_of):,} keys; signed an hour off: {skewed:,}",
        f"how they were treated: {_counted(Counter(request.manner.value for request in record.requests))}",
        f"leases lost: {_counted(record.lost_leases)}",
    ]


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items(), key=lambda each: -each[1])) or "none"
