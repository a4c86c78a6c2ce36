"""What `tocsin pause` and `tocsin resume` share: whom they are told of, and the call that does it."""

import asyncio
import sys
from contextlib import nullcontext
from typing import Annotated
from urllib.parse import quote

import typer

from service.cli.output import plain, print_fields, print_json
from service.cli.things import named
from service.cli.verdicts import called

Subscriber = Annotated[str, typer.Argument(metavar="ID", help="The subscriber's id.")]
Job = Annotated[str, typer.Argument(metavar="NAME", help="The job's name in tocsin.toml.")]
Reason = Annotated[str | None, typer.Option(help="Why; it stands in the audit trail.")]


_WHY = {"subscribers": "stateReason", "jobs": "pausedReason", "dispatch": "reason"}
"""Where an answer says why its thing is paused."""


def steer(url: str, collection: str, name: str | None, verb: str, reason: str | None, *, as_json: bool) -> None:
    """Pause or resume one of a collection, or what has no name of its own, and print how it stands then."""
    path = f"/v1/{collection}" if name is None else f"/v1/{collection}/{quote(name, safe='')}"
    body = {} if reason is None else {"reason": reason}
    with nullcontext() if name is None else named(collection.removesuffix("s"), name):
        standing = asyncio.run(called(url, "POST", f"{path}/{verb}", body))
    if verb == "pause":
        warn_of_the_first(standing.get(_WHY[collection]), reason)
    if as_json:
        print_json(standing)
    else:
        print_fields(standing)


def warn_of_the_first(kept: str | None, given: str | None) -> None:
    """Say on stderr that a pause was there before, where its reason shows it: the one given is then not kept."""
    if given is not None and kept != given.strip():
        first = f"the first reason stays: {plain(kept)}" if kept else "without a reason, and stays so"
        sys.stderr.write(f"It was paused already; {first}\n")
