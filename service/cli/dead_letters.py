"""`tocsin dead-letters`: what has not arrived and will not by itself, by cause."""

import asyncio
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, command_app
from service.cli.output import print_json, print_table

app = command_app()

_COLUMNS = ("STATE", "REASON", "CLASS", "STATUS", "SUBSCRIBER", "COUNT", "OLDEST", "NEWEST", "DETAIL", "EXAMPLE")


@app.command()
def dead_letters(
    subscriber: Annotated[str | None, typer.Option(help="Only those of this subscriber.")] = None,
    by_subscriber: Annotated[bool, typer.Option("--by-subscriber", help="Each subscriber by itself.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Count the dead letters by state, reason, last outcome and status, the most frequent first, each with an example.

    `tocsin deliveries --state STATE --reason REASON` lists them, `tocsin replay` sends them again.
    """
    found = asyncio.run(_fetch(url, {"subscriberId": subscriber, "bySubscriber": "true" if by_subscriber else None}))
    if as_json:
        print_json(found)
        return
    print_table(_COLUMNS, [_row(group) for group in found["groups"]], empty="No dead letters.")
    if found["truncated"]:
        typer.echo(f"There are more: these are the newest {found['read']:,}.")


async def _fetch(url: str, params: dict[str, str | int | None]) -> dict[str, Any]:
    async with Api(url, api_key()) as api:
        found: dict[str, Any] = await api.call("GET", "/v1/dead-letters", params=params)
        return found


def _row(group: dict[str, Any]) -> tuple[object, ...]:
    whose = group["subscriberId"] or f"{group['subscribers']:,} of them"
    kind = tuple(group[name] for name in ("state", "reason", "class", "status"))
    return (*kind, whose, f"{group['count']:,}", *(group[n] for n in ("oldest", "newest", "detail", "example")))
