"""`tocsin backlog`: what waits, how fast it moves, and where it is worst."""

import asyncio
from collections.abc import Mapping
from typing import Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, command_app
from service.cli.output import print_fields, print_json, print_table
from service.domain.durations import spoken

app = command_app()

_COLUMNS = ("SUBSCRIBER", "DUE", "OLDEST DUE", "WAITS FOR", "NEXT")
_WHY = {
    "dispatch-paused": "all dispatch is paused; `tocsin resume dispatch` lets it go on",
    "no-headroom": "no more is finished than arrives",
    "no-data": "there is no whole minute to judge by yet",
}


@app.command()
def backlog(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show what is due, scheduled, held and in flight, how fast it moves, and the subscribers that wait longest.

    Rates are those of the last five whole minutes.
    """
    found = asyncio.run(_fetch(url))
    if as_json:
        print_json(found)
        return
    print_fields(_summary(found))
    typer.echo()
    print_table(_COLUMNS, [_row(lane) for lane in found["lanes"]], empty="Nobody waits.")


async def _fetch(url: str) -> dict[str, Any]:
    async with Api(url, api_key()) as api:
        found: dict[str, Any] = await api.call("GET", "/v1/backlog")
        return found


def _summary(found: Mapping[str, Any]) -> dict[str, str]:
    more = " or more" if found["capped"] else ""
    amplification = found["retryAmplification"]
    return {
        "due": f"{found['due']:,}{more}, the oldest for {_age(found['oldestDueAgeSeconds'])}",
        "in flight": f"{found['leased']:,}",
        "scheduled": f"{found['scheduled']:,}{more}",
        "held": f"{found['held']:,}{more}",
        "oldest unfinished": _age(found["oldestPendingAgeSeconds"]),
        "not fanned out": _unfanned(found),
        "arrivals": f"{found['arrivalsPerMinute']:,.1f} a minute",
        "completions": f"{found['completionsPerMinute']:,.1f} a minute",
        "headroom": f"{found['headroomPerMinute']:+,.1f} a minute",
        "attempts": "" if amplification is None else f"{amplification:.2f} for each delivery that ended",
        "drained": _drained(found),
    }


def _unfanned(found: Mapping[str, Any]) -> str:
    """Empty where there is nothing to be told of."""
    if not found["unfannedEvents"]:
        return ""
    return f"{found['unfannedEvents']:,} published events, the oldest for {_age(found['oldestUnfannedAgeSeconds'])}"


def _drained(found: Mapping[str, Any]) -> str:
    seconds = found["drainEtaSeconds"]
    if seconds is None:
        return f"never: {_WHY.get(found['drainEtaReason'], found['drainEtaReason'])}"
    return f"in {_age(seconds)}" if seconds else "yes"


def _row(lane: Mapping[str, Any]) -> tuple[object, ...]:
    age = lane["oldestDueAgeSeconds"]
    waits_for = lane["reason"] or "a worker"
    return lane["subscriberId"], f"{lane['due']:,}", "" if age is None else _age(age), waits_for, lane["nextAt"]


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else spoken(seconds)
