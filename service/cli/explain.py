"""`tocsin explain`: why a subscriber got an event, or did not, and what mends it."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.deliveries import outcome
from service.cli.options import AsJson, command_app
from service.cli.output import plain, print_fields, print_json
from service.cli.things import in_options

app = command_app()


@app.command()
def explain(
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="The event's id (`tocsin events` lists them), or a whole webhook-id.")
    ],
    subscriber: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBSCRIBER", help="The subscriber's id; deleted ones too. A whole webhook-id has it already."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Explain why a subscriber got an event, or did not, and name what mends it."""
    found = asyncio.run(_fetch(url, event, subscriber))
    if as_json:
        print_json(found)
        return
    typer.echo(plain(found["verdict"]))
    typer.echo()
    print_fields(_facts(found))


async def _fetch(url: str, event: str, subscriber: str | None) -> dict[str, Any]:
    async with Api(url, api_key()) as api:
        with in_options({"/query/eventId": "EVENT", "/query/subscriberId": "SUBSCRIBER"}):
            params = {"eventId": event, "subscriberId": subscriber}
            found: dict[str, Any] = await api.call("GET", "/v1/explain", params=params)
        return found


def _facts(found: Mapping[str, Any]) -> dict[str, Any]:
    """What it was judged by, in the order in which an event goes its way."""
    event, subscriber, delivery, before = (
        found[name] or {} for name in ("event", "subscriber", "delivery", "predecessor")
    )
    return {
        "cause": found["cause"],
        "event": " ".join(str(event[name]) for name in ("type", "subject", "version")) if event else "none",
        "of tenant": event.get("tenantId"),
        "fanned out": (event.get("fannedOutAt") or "not yet") if event else None,
        "purged": event.get("purgedAt"),
        "subscriber": _state(subscriber) if subscriber else "none",
        "its tenant": subscriber.get("tenantId"),
        "its event types": subscriber.get("eventTypes"),
        "of which match": (found["matching"] or "none") if event and subscriber else None,
        "created": subscriber.get("createdAt"),
        "deleted": subscriber.get("deletedAt"),
        "delivery": delivery.get("id", "none"),
        "state": delivery.get("state"),
        "held by": delivery.get("heldBy"),
        "waits for": f"{before['id']}, which is {before['state']}" if before else None,
        "reason": delivery.get("reason"),
        "next attempt": delivery.get("nextAttemptAt"),
        "attempts": delivery.get("attemptCount"),
        "last outcome": outcome(delivery) if delivery else None,
    }


def _state(subscriber: Mapping[str, Any]) -> str:
    why = f" ({subscriber['stateReason']})" if subscriber["stateReason"] else ""
    return f"{subscriber['id']} is {subscriber['state']}{why}, {subscriber['mode']}"
