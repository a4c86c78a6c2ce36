"""`tocsin audit`: who did what to which thing, when and why."""

import asyncio
import json
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, Limit, command_app
from service.cli.output import print_json, print_table

app = command_app()


@app.command()
def audit(
    actor: Annotated[str | None, typer.Option(help="Only what this actor did (the name of an API key).")] = None,
    thing: Annotated[
        str | None,
        typer.Option("--object", metavar="KIND:ID", help="Only what was done to this thing, like subscriber:billing."),
    ] = None,
    limit: Limit = 50,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Print the audit trail, newest first: who did what, when and why, before and after."""
    found = asyncio.run(_fetch(url, limit, {"actor": actor, "object": thing}))
    if as_json:
        print_json(found)
        return
    print_table(
        ("AT", "ACTOR", "ACTION", "OBJECT", "REASON", "DETAIL"), [_row(line) for line in found], empty="No lines found."
    )


async def _fetch(url: str, limit: int, params: dict[str, str | int | None]) -> list[dict[str, Any]]:
    async with Api(url, api_key()) as api:
        return await api.items("/v1/audit", limit, params)


def _row(line: dict[str, Any]) -> tuple[object, ...]:
    detail = json.dumps(line["detail"], ensure_ascii=False) if line["detail"] else ""
    return line["at"], line["actor"], line["action"], line["object"], line["reason"], detail
