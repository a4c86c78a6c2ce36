"""`tocsin events`: the list of events, newest first, with what leads from a subject to an event's id."""

import asyncio
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, Limit, command_app
from service.cli.output import print_json, print_table
from service.cli.things import in_options

app = command_app()


@app.command()
def events(
    subject: Annotated[str | None, typer.Option(help="Only events about exactly this subject.")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="Only events of exactly this type.")] = None,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List events, newest first; `explain EVENT SUBSCRIBER` says why a subscriber got one, or did not."""
    found = asyncio.run(_fetch(url, limit, {"subject": subject, "type": event_type}))
    if as_json:
        print_json(found)
        return
    print_table(
        ("EVENT", "TENANT", "TYPE", "SUBJECT", "VERSION", "CREATED", "FANNED OUT", "FOUND OR PUBLISHED BY"),
        [_row(event) for event in found],
        empty="No events found.",
    )


async def _fetch(url: str, limit: int, params: dict[str, str | int | None]) -> list[dict[str, Any]]:
    async with Api(url, api_key()) as api:
        with in_options({"/query/subject": "--subject", "/query/type": "--type"}):
            return await api.items("/v1/events", limit, params)


def _row(event: dict[str, Any]) -> tuple[object, ...]:
    due = f"no, due at {event['dueAt']}" if event["dueAt"] else "no"
    by = event["publishedBy"] or (f"run {event['run']}" if event["run"] else "Tocsin")
    what = tuple(event[name] for name in ("id", "tenantId", "type", "subject", "version", "createdAt"))
    return (*what, event["fannedOutAt"] or due, by)
