"""`tocsin subscribers`: who gets what, and steering them one by one, over HTTP."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.options import AsJson, Limit, command_app
from service.cli.output import print_fields, print_json, print_table
from service.cli.steering import Reason, steer
from service.cli.subscriber_files import FOR_READING_ONLY, Kept, SecretTo, read_body
from service.cli.things import named
from service.domain.subscriber import DEFAULT_GRACE_SECONDS, GRACE_SECONDS
from service.domain.timestamps import format_rfc3339

app = command_app(no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The subscriber's id.")]


def _grace(given: float) -> float:
    """A grace that the API would take; infinity and what is no number cannot even be said in JSON.

    Raises:
        typer.BadParameter: it would not.

    """
    if fault := GRACE_SECONDS.fault(given):
        raise typer.BadParameter(fault)
    return given


@app.callback()
def subscribers() -> None:
    """List, register and steer subscribers. docs/subscribers.md says what their fields mean."""


@app.command(name="list")
def list_(limit: Limit = 50, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List subscribers, newest first."""
    found = asyncio.run(_list(url, limit))
    if as_json:
        print_json(found)
        return
    columns = ("SUBSCRIBER", "STATE", "MODE", "EVENT TYPES", "ORDERING", "URL", "REASON")
    fields = ("id", "state", "mode", "eventTypes", "ordering", "url", "stateReason")
    rows = [tuple(", ".join(row[name]) if name == "eventTypes" else row[name] for name in fields) for row in found]
    print_table(columns, rows, empty="No subscribers. Register one with `tocsin subscribers put ID FILE`.")


@app.command()
def show(
    subscriber_id: Id,
    for_put: Annotated[
        bool, typer.Option("--for-put", help="Print only what `put` takes, as JSON: a file to edit.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show one subscriber. Values of its headers are masked unless the key's scope is admin."""
    found = _call(url, "GET", subscriber_id)
    if for_put:
        print_json({name: value for name, value in found.items() if name not in FOR_READING_ONLY})
    else:
        _print(found, as_json)


@app.command()
def put(
    subscriber_id: Id,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON with the whole subscriber, - reads it from stdin.")
    ],
    secret: Annotated[
        str | None,
        typer.Option(
            metavar="env:NAME|file:PATH",
            help="The signing secret (whsec_…) to create it with; without it, one is made. It is never changed.",
        ),
    ] = None,
    secret_to: SecretTo = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Create a subscriber or put the whole of FILE in the place of what is stored; what it leaves out gets its default.

    The same put again changes nothing. A secret that was made is shown this once, or goes into the file of --secret-to.
    """
    body = read_body(file, secret)
    with Kept(secret_to) as kept:
        answer = _call(url, "PUT", subscriber_id, body=body)
        kept.take(answer, given=secret is not None)
    _print(answer, as_json)


@app.command()
def pause(subscriber_id: Id, reason: Reason = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Hold a subscriber's deliveries and lose none; what is in flight finishes."""
    steer(url, "subscribers", subscriber_id, "pause", reason, as_json=as_json)


@app.command()
def resume(subscriber_id: Id, reason: Reason = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Send to a subscriber again that was paused or disabled."""
    steer(url, "subscribers", subscriber_id, "resume", reason, as_json=as_json)


@app.command(name="rotate-secret")
def rotate_secret(
    subscriber_id: Id,
    grace_seconds: Annotated[
        float, typer.Option(help="How long the older secrets go on signing; 0 ends them at once.", callback=_grace)
    ] = DEFAULT_GRACE_SECONDS,
    secret_to: SecretTo = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Make a new signing secret, shown this once or written into the file of --secret-to.

    It signs at once, and the older ones beside it until their grace is over: give it to the receiver before that.
    """
    with Kept(secret_to) as kept:
        answer = _call(url, "POST", subscriber_id, "/rotate-secret", body={"graceSeconds": grace_seconds})
        kept.take(answer)
    sys.stderr.write(f"{_older(grace_seconds)}\n")
    _print(answer, as_json)


@app.command(name="test")
def send_test(subscriber_id: Id, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Send a signed `tocsin.test` event to a subscriber, through the whole path."""
    sent = _call(url, "POST", subscriber_id, "/test")
    if as_json:
        print_json(sent)
    else:
        typer.echo(f"It is on its way: `tocsin deliveries show {sent['deliveryId']}` tells what came of it.")


@app.command()
def delete(
    subscriber_id: Id,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a subscriber: what is unfinished is cancelled, history stays."""
    if not yes:
        typer.confirm(f"Cancel what is unfinished and delete {subscriber_id}?", abort=True)
    _call(url, "DELETE", subscriber_id)
    typer.echo(f"{subscriber_id} is deleted.")


def _older(grace_seconds: float) -> str:
    """What becomes of the secrets before a new one."""
    if not grace_seconds:
        return "The older secrets do not sign any more."
    until = (datetime.now(UTC) + timedelta(seconds=grace_seconds)).replace(microsecond=0)
    return f"The older secrets go on signing beside it until {format_rfc3339(until)} at the latest."


async def _list(url: str, limit: int) -> list[dict[str, Any]]:
    async with Api(url, api_key()) as api:
        return await api.items("/v1/subscribers", limit, {})


def _call(url: str, method: str, slug: str, verb: str = "", *, body: dict[str, Any] | None = None) -> dict[str, Any]:
    with named("subscriber", slug):
        return asyncio.run(_called(url, method, f"/v1/subscribers/{quote(slug, safe='')}{verb}", body))


async def _called(url: str, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    async with Api(url, api_key()) as api:
        answer: dict[str, Any] = await api.call(method, path, body=body) or {}
        return answer


def _print(subscriber: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(subscriber)
    else:
        print_fields(subscriber)
