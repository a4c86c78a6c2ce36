"""`tocsin audit`: who did what to which thing, when and why."""

import asyncio
import json
import sys
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, Limit, command_app
from service.cli.output import plain, print_json, print_table
from service.domain.identifiers import parse_delivery_id

app = command_app()

_KINDS = ("subscriber", "delivery", "job", "run", "replay", "key")
_WITHOUT_ID = ("dispatch", "encryption-keys")


@app.command()
def audit(
    actor: Annotated[str | None, typer.Option(help="Only what this actor did (the name of an API key).")] = None,
    thing: Annotated[
        str | None,
        typer.Option(
            "--object",
            metavar="KIND:ID",
            help="Only what was done to this thing: subscriber:billing, delivery:dlv_…, job:NAME, run:ID, replay:ID, "
            "key:NAME, dispatch, encryption-keys.",
        ),
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
    if not found and thing is not None and (hint := _meant(thing)):
        sys.stderr.write(f"An object is written as KIND:ID; {plain(hint)}\n")
    print_table(
        ("AT", "ACTOR", "ACTION", "OBJECT", "REASON", "DETAIL"), [_row(line) for line in found], empty="No lines found."
    )


def _meant(thing: str) -> str:
    """How an object is written that was named without its kind, or with one that there is not."""
    kind, colon, _ = thing.partition(":")
    if thing in _WITHOUT_ID or (colon and kind in _KINDS):
        return ""
    if not colon and parse_delivery_id(thing):
        return f"this one is delivery:{thing}."
    return f"the kinds are {', '.join(_KINDS)}, and {' and '.join(_WITHOUT_ID)} without an ID."


async def _fetch(url: str, limit: int, params: dict[str, str | int | None]) -> list[dict[str, Any]]:
    async with Api(url, api_key()) as api:
        return await api.items("/v1/audit", limit, params)


def _row(line: dict[str, Any]) -> tuple[object, ...]:
    detail = json.dumps(line["detail"], ensure_ascii=False) if line["detail"] else ""
    return line["at"], line["actor"], line["action"], line["object"], line["reason"], detail
