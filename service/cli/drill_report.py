"""What a drill prints: its timeline as it happens, the table of verdicts, and what stays behind."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from service.cli.drill_evidence import Ruling, Verdict
from service.cli.drill_stage import TENANT, Stage
from service.cli.drill_timeline import Line
from service.cli.output import console, plain, table
from service.domain.timestamps import format_rfc3339

_CITED = 3


def show_line(line: Line) -> None:
    """Print one line of the timeline."""
    console().print(f"{line.seconds:7.2f}  {line.sequence:<14}  {plain(line.what)}", soft_wrap=True)


def say_nothing(line: Line) -> None:
    """Show no timeline: it stands in the JSON."""


def show(verdicts: Sequence[Verdict], stage: Stage, left: Sequence[str]) -> None:
    """Print the verdicts and what stays behind."""
    rows = [row for each in verdicts for row in _block(each)]
    out = console()
    out.print()
    out.print(table(("VERDICT", "SEQUENCE", "PROMISE, AND THE ROWS THAT SHOW IT"), rows))
    counts = Counter(each.ruling for each in verdicts)
    out.print("\n" + ", ".join(f"{counts[ruling]} {ruling}" for ruling in Ruling) + ".")
    out.print(_behind(stage, left), soft_wrap=True)


def document(verdicts: Sequence[Verdict], stage: Stage, left: Sequence[str]) -> dict[str, Any]:
    """The whole drill as JSON."""
    return {
        "drill": stage.tag,
        "url": stage.api.url,
        "counts": {ruling.value: sum(each.ruling is ruling for each in verdicts) for ruling in Ruling},
        "verdicts": [_verdict(each) for each in verdicts],
        "timeline": [
            {"at": format_rfc3339(line.at), "sequence": line.sequence, "what": line.what}
            for line in stage.timeline.lines
        ],
        "published": stage.events,
        "dueUnfound": stage.unfound,
        "notCleared": list(left),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    checks = [{"promise": each.promise, "held": each.held, "rows": each.rows} for each in verdict.checks]
    return {
        "sequence": verdict.sequence,
        "promise": verdict.promise,
        "verdict": verdict.ruling,
        "said": verdict.said,
        "checks": checks,
    }


def _block(verdict: Verdict) -> Iterator[tuple[str, str, str]]:
    """A verdict's lines in the table, with the first of its rows; the JSON has all of them, and every check."""
    yield verdict.ruling, verdict.sequence, verdict.promise
    if verdict.ruling is not Ruling.KEPT:
        yield "", "", f"  {verdict.said}"
    more = len(verdict.rows) - _CITED
    for row in verdict.rows[:_CITED]:
        yield "", "", f"  {row}"
    if more > 0:
        yield "", "", f"  and {more} more"


def _behind(stage: Stage, left: Sequence[str]) -> str:
    history = (
        f"The drill's {len(stage.targets)} subscribers are deleted and its dead letters are closed. As history stay "
        f"{stage.events:,} events of the tenant {TENANT} (types drill.{stage.tag}.…), their deliveries and attempts, "
        "and the lines of the audit trail, until a retention job deletes them."
    )
    if stage.unfound:
        history += (
            f" {stage.unfound:,} of the events are due and no run has found them: the next run of an outbox job counts "
            "them, and sends them to nobody."
        )
    return history if not left else f"NOT CLEARED, delete them by hand: {plain('; '.join(left))}"
