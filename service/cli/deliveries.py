"""`tocsin deliveries`: the list with its filters, and one delivery with every attempt."""

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, Limit, command_app
from service.cli.output import plain, print_fields, print_json, print_table
from service.cli.run import own_id
from service.cli.things import in_options, named
from service.domain.model import DeliveryState

app = command_app(invoke_without_command=True)


@app.callback()
def deliveries(
    context: typer.Context,
    state: Annotated[
        DeliveryState | None,
        typer.Option(help="Only deliveries in this state."),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Only deliveries that ended for this reason.")] = None,
    subscriber: Annotated[str | None, typer.Option(help="Only deliveries to this subscriber.")] = None,
    run: Annotated[str | None, typer.Option(help="Only deliveries of this run (its ID or RUN ID).")] = None,
    event: Annotated[str | None, typer.Option(help="Only deliveries of this event (its id).")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="Only deliveries of this event type.")] = None,
    since: Annotated[str | None, typer.Option(help="Created at or after this time (2026-11-30T02:00:00Z).")] = None,
    until: Annotated[str | None, typer.Option(help="Created before this time.")] = None,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first; `deliveries show ID` prints one with all that happened to it."""
    if context.invoked_subcommand is not None:
        return
    filters: dict[str, str | int | None] = {
        "state": state and state.value,
        "reason": reason,
        "subscriberId": subscriber,
        "eventId": event,
        "eventType": event_type,
        "since": since,
        "until": until,
    }
    found = asyncio.run(_list(url, limit, run, filters))
    if as_json:
        print_json(found)
        return
    print_table(
        ("DELIVERY", "SUBSCRIBER", "EVENT TYPE", "SUBJECT", "STATE", "ATTEMPTS", "LAST OUTCOME", "NEXT / REASON"),
        [_row(delivery) for delivery in found],
        empty="No deliveries found.",
    )


@app.command()
def show(
    delivery_id: Annotated[str, typer.Argument(metavar="ID", help="The delivery's id: dlv_…")],
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show one delivery: what came of each attempt, who replayed it and why, what operators did to it."""
    found = asyncio.run(_one(url, delivery_id))
    if as_json:
        print_json(found)
        return
    attempts, replays, actions = (found.pop(name) for name in ("attempts", "replays", "actions"))
    print_fields(found)
    typer.echo()
    print_table(
        ("ATTEMPT", "GENERATION", "OUTCOME", "STATUS", "STARTED", "MS", "DETAIL", "ANSWER"),
        [_attempt(attempt) for attempt in attempts],
        empty="No attempt has been made yet.",
    )
    if replays:
        typer.echo()
        print_table(
            ("GENERATION", "REPLAYED AT", "BY", "WHY", "WAS", "BULK REPLAY"), [_replay(each) for each in replays]
        )
    if actions:
        typer.echo()
        print_table(
            ("AT", "ACTION", "BY", "WHY"),
            [tuple(each[name] for name in ("at", "action", "actor", "reason")) for each in actions],
        )


async def _list(url: str, limit: int, run: str | None, filters: dict[str, str | int | None]) -> list[dict[str, Any]]:
    async with Api(url, api_key()) as api:
        if run is not None:
            filters["runId"] = await own_id(api, run)
        with in_options({"/query/reason": "--reason"}):
            return await api.items("/v1/deliveries", limit, filters)


async def _one(url: str, delivery_id: str) -> dict[str, Any]:
    async with Api(url, api_key()) as api:
        with named("delivery", delivery_id):
            found: dict[str, Any] = await api.call("GET", f"/v1/deliveries/{quote(delivery_id, safe='')}")
        return found


def outcome(delivery: dict[str, Any]) -> str:
    """The last outcome in a few words: its class, the status and the detail."""
    last = delivery["lastOutcome"]
    if not last:
        return ""
    return plain(
        f"{last['class']} ({last['detail'] or last['status']})" if last["detail"] or last["status"] else last["class"]
    )


def _row(delivery: dict[str, Any]) -> tuple[object, ...]:
    waits = delivery["heldBy"] or delivery["nextAttemptAt"]
    why = delivery["reason"] if delivery["finishedAt"] else waits
    return (
        delivery["id"],
        delivery["subscriberId"],
        delivery["eventType"],
        delivery["subject"],
        delivery["state"],
        delivery["attemptCount"],
        outcome(delivery),
        why,
    )


def _attempt(attempt: dict[str, Any]) -> tuple[object, ...]:
    fields = ("number", "generation", "outcome", "status", "startedAt", "durationMs", "detail", "responseExcerpt")
    return tuple(attempt[name] for name in fields)


def _replay(replay: dict[str, Any]) -> tuple[object, ...]:
    was = f"{replay['wasState']} ({replay['wasReason']})" if replay["wasReason"] else replay["wasState"]
    return (*(replay[name] for name in ("generation", "at", "requestedBy", "reason")), was, replay["replayId"])
