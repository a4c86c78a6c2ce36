"""What commands that steer deliveries share: the options that they have alike, and doing it to one or to several."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import Api, api_key
from service.cli.output import plain, print_json
from service.cli.things import check_delivery_ids, in_options, named
from service.domain.errors import TocsinError

Because = Annotated[str, typer.Option("--reason", help="Why, in 1-500 characters; it stands in the audit trail.")]
DeliveryId = Annotated[str, typer.Argument(metavar="ID", help="The delivery's id: dlv_…")]

_OPTIONS = {"/reason": "--reason", "/resolution": "--as"}


def on_delivery(url: str, delivery_id: str, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The delivery in full after `verb` was done to it.

    Raises:
        TocsinError: it is refused; where there is no such delivery, or it is no id at all, the message names it.

    """
    check_delivery_ids([delivery_id])
    with named("delivery", delivery_id):
        return asyncio.run(called(url, "POST", f"/v1/deliveries/{quote(delivery_id, safe='')}/{verb}", body))


def on_each(
    url: str,
    delivery_ids: Sequence[str],
    verb: str,
    body: Mapping[str, Any],
    *,
    as_json: bool,
    told: Callable[[Mapping[str, Any]], str],
) -> None:
    """Do the same to each and print it as it is done; none is tried unless all of them look like ids.

    Raises:
        TocsinError: one is refused; the message says which, how many were done, and which were not tried.

    """
    check_delivery_ids(delivery_ids)
    done: list[dict[str, Any]] = []
    try:
        for each in delivery_ids:
            done.append(on_delivery(url, each, verb, body))
            if not as_json:
                typer.echo(plain(told(done[-1])))
    except TocsinError as refusal:
        raise TocsinError(_stopped(refusal.detail, delivery_ids, len(done))) from None
    finally:
        if as_json and done:
            print_json(done)


def _stopped(detail: str, delivery_ids: Sequence[str], done: int) -> str:
    """The refusal with the id that it is about, and what became of the others."""
    failed, untried = delivery_ids[done], delivery_ids[done + 1 :]
    said = detail if failed in detail else f"{failed}: {detail}"
    if len(delivery_ids) == 1:
        return said
    left = f"not tried: {' '.join(untried)}" if untried else "it was the last"
    return f"{said} Done before it: {done} of {len(delivery_ids)}; {left}."


async def called(url: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the API answers to one request."""
    async with Api(url, api_key()) as api:
        with in_options(_OPTIONS):
            answer: dict[str, Any] = await api.call(method, path, body=body)
        return answer


def in_brief(delivery: Mapping[str, Any]) -> str:
    """Where a delivery stands, in a line."""
    reason = f" ({delivery['reason']})" if delivery["reason"] else ""
    held = f", held by {delivery['heldBy']}" if delivery["heldBy"] else ""
    return f"{delivery['id']} is {delivery['state']}{reason}, generation {delivery['generation']}{held}"
