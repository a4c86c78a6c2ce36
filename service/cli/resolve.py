"""`tocsin resolve`: says what a dead letter is that a person has looked at."""

from enum import StrEnum
from typing import Annotated

import typer

from service.cli.api import DEFAULT_URL, Url
from service.cli.options import AsJson, command_app
from service.cli.output import plain, print_json
from service.cli.verdicts import Because, DeliveryId, in_brief, on_delivery

app = command_app()


class Resolution(StrEnum):
    """What it was found to be."""

    DELIVERED = "delivered"
    CANCELLED = "cancelled"


@app.command()
def resolve(
    delivery_id: DeliveryId,
    resolution: Annotated[Resolution, typer.Option("--as", help="What it was found to be.")],
    reason: Because,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Resolve a dead letter that you have looked at: it is delivered after all, or nobody needs it. Nothing is sent.

    An ordered subscriber that it blocked goes on behind it.
    """
    done = on_delivery(url, delivery_id, "resolve", {"resolution": resolution.value, "reason": reason})
    if as_json:
        print_json(done)
    else:
        typer.echo(plain(in_brief(done)))
