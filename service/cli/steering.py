"""What `tocsin pause` and `tocsin resume` share: whom they are told of, and the call that does it."""

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import Api, api_key
from service.cli.output import print_fields, print_json

Subscriber = Annotated[str, typer.Argument(metavar="ID", help="The subscriber's id.")]
Job = Annotated[str, typer.Argument(metavar="NAME", help="The job's name in tocsin.toml.")]
Reason = Annotated[str | None, typer.Option(help="Why; it stands in the audit trail.")]


def steer(url: str, collection: str, name: str | None, verb: str, reason: str | None, *, as_json: bool) -> None:
    """Pause or resume one of a collection, or what has no name of its own, and print how it stands then."""
    path = f"/v1/{collection}" if name is None else f"/v1/{collection}/{quote(name, safe='')}"
    standing = asyncio.run(_steered(url, f"{path}/{verb}", {} if reason is None else {"reason": reason}))
    if as_json:
        print_json(standing)
    else:
        print_fields(standing)


async def _steered(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with Api(url, api_key()) as api:
        standing: dict[str, Any] = await api.call("POST", path, body=body)
        return standing
