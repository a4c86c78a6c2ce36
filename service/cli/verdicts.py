"""What commands that steer deliveries share: the options that they have alike, and one call in the API."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import Api, api_key

Because = Annotated[str, typer.Option("--reason", help="Why, in 1-500 characters; it stands in the audit trail.")]
DeliveryId = Annotated[str, typer.Argument(metavar="ID", help="The delivery's id: dlv_…")]


def on_delivery(url: str, delivery_id: str, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The delivery in full after `verb` was done to it."""
    return asyncio.run(called(url, "POST", f"/v1/deliveries/{quote(delivery_id, safe='')}/{verb}", body))


async def called(url: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the API answers to one request."""
    async with Api(url, api_key()) as api:
        answer: dict[str, Any] = await api.call(method, path, body=body)
        return answer


def in_brief(delivery: Mapping[str, Any]) -> str:
    """Where a delivery stands, in a line."""
    reason = f" ({delivery['reason']})" if delivery["reason"] else ""
    held = f", held by {delivery['heldBy']}" if delivery["heldBy"] else ""
    return f"{delivery['id']} is {delivery['state']}{reason}, generation {delivery['generation']}{held}"
