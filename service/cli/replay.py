"""`tocsin replay`: sends deliveries again, some by their ids or all that match."""

import asyncio
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, command_app
from service.cli.output import plain, print_json
from service.cli.replay_progress import announce, describe, follow
from service.cli.run import own_id
from service.cli.things import in_options
from service.cli.verdicts import Because, in_brief, on_each
from service.domain.model import DeliveryState

app = command_app()

_SLOWEST, _FASTEST = 0.1, 10_000.0
"""Deliveries a second, as the API bounds them."""
_OPTIONS = {
    "/reason": "--reason",
    "/ratePerSecond": "--rate",
    "/filter/state": "--state",
    "/filter/reason": "--ended-for",
    "/filter/subscriberId": "--subscriber",
    "/filter/runId": "--run",
    "/filter/eventType": "--type",
    "/filter/since": "--since",
    "/filter/until": "--until",
    "/filter": "the filters",
}
_FILTERS = ", ".join(option for pointer, option in _OPTIONS.items() if pointer.startswith("/filter/"))

_STATES = "exhausted and rejected ones without it; delivered, ambiguous and cancelled ones have to be named."


def _rate(given: float | None) -> float | None:
    """A rate that the API would take; infinity and what is no number cannot even be said in JSON.

    Raises:
        typer.BadParameter: it would not.

    """
    if given is not None and not _SLOWEST <= given <= _FASTEST:
        raise typer.BadParameter(f"must be a number from {_SLOWEST:g} to {_FASTEST:,.0f}")
    return given


@app.command()
def replay(
    reason: Because,
    delivery_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="The deliveries' ids: dlv_…; none with filters.")
    ] = None,
    state: Annotated[DeliveryState | None, typer.Option(help=f"Only deliveries in this state: {_STATES}")] = None,
    ended_for: Annotated[
        str | None, typer.Option("--ended-for", metavar="REASON", help="Only deliveries that ended for this reason.")
    ] = None,
    subscriber: Annotated[str | None, typer.Option(help="Only deliveries to this subscriber.")] = None,
    run: Annotated[str | None, typer.Option(help="Only deliveries of this run (its ID or RUN ID).")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="Only deliveries of this event type.")] = None,
    since: Annotated[str | None, typer.Option(help="Created at or after this time (2026-11-30T02:00:00Z).")] = None,
    until: Annotated[str | None, typer.Option(help="Created before this time.")] = None,
    rate: Annotated[float | None, typer.Option(help="How many a second; 100 without it.", callback=_rate)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it with a progress bar.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Send deliveries again that have ended: under the same key, with the same bytes, as their next generation.

    By ids, one after another up to the first that is refused; it says which were not tried.

    With filters, all that match now, behind first attempts and retries and at a rate; --dry-run counts them first. It
    goes on by itself: `tocsin replays` shows how far it is, and stops it. It is completed when all are released, each
    as a new generation; `tocsin deliveries` says what came of them.
    """
    filters = {
        "state": state.value if state else None,
        "reason": ended_for,
        "subscriberId": subscriber,
        "runId": run,
        "eventType": event_type,
        "since": since,
        "until": until,
    }
    sought = {name: value for name, value in filters.items() if value is not None}
    bulk = {"ratePerSecond": rate, "dryRun": dry_run or None}
    wanted = {"reason": reason, "filter": sought} | {name: value for name, value in bulk.items() if value is not None}
    if not delivery_ids:
        if not sought:
            raise typer.BadParameter(f"Name deliveries by their ids, or all that match a filter: {_FILTERS}.")
        _print_bulk(asyncio.run(_replay_all(url, wanted, watch=watch and not dry_run)), as_json)
    elif sought or watch or len(wanted) > 2:  # noqa: PLR2004 - the reason and the empty filter
        message = (
            "Name deliveries by their ids, or all that match a filter: --rate, --dry-run and --watch go with those."
        )
        raise typer.BadParameter(message)
    else:
        on_each(url, delivery_ids, "replay", {"reason": reason}, as_json=as_json, told=in_brief)


def _print_bulk(started: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(started)
        return
    typer.echo(plain(describe(started)))
    if started["state"] == "running":
        typer.echo(f"Follow it: tocsin replays watch {started['id']}")


async def _replay_all(url: str, wanted: dict[str, Any], *, watch: bool) -> dict[str, Any]:
    async with Api(url, api_key()) as api:
        if run := wanted["filter"].get("runId"):
            wanted["filter"]["runId"] = await own_id(api, run)
        with in_options(_OPTIONS):
            started: dict[str, Any] = await api.call("POST", "/v1/replays", body=wanted)
        if not watch:
            return started
        announce(started)
        return dict(await follow(api, started["id"]))
