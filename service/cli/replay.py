"""`tocsin replay`: sends deliveries again, some by their ids or all that match."""

import asyncio
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, command_app
from service.cli.output import plain, print_json
from service.cli.replay_progress import describe, follow
from service.cli.run import own_id
from service.cli.verdicts import Because, in_brief, on_delivery
from service.domain.model import DeliveryState

app = command_app()

_STATES = "exhausted and rejected ones without it; delivered, ambiguous and cancelled ones have to be named."


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
    rate: Annotated[float | None, typer.Option(help="How many a second; 100 without it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it with a progress bar.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Send deliveries again that have ended: under the same key, with the same bytes, as their next generation.

    With filters, all that match now, behind first attempts and retries and at a rate; --dry-run counts them first. It
    goes on by itself: `tocsin replays` shows how far it is, and stops it.
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
        _print_bulk(asyncio.run(_replay_all(url, wanted, watch=watch and not dry_run)), as_json)
    elif sought or watch or len(wanted) > 2:  # noqa: PLR2004 - the reason and the empty filter
        message = (
            "Name deliveries by their ids, or all that match a filter: --rate, --dry-run and --watch go with those."
        )
        raise typer.BadParameter(message)
    else:
        _print_each([on_delivery(url, each, "replay", {"reason": reason}) for each in delivery_ids], as_json)


def _print_each(done: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        typer.echo("\n".join(plain(in_brief(each)) for each in done))


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
        started: dict[str, Any] = await api.call("POST", "/v1/replays", body=wanted)
        return dict(await follow(api, started["id"])) if watch else started
