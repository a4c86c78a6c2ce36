"""`tocsin receiver`: a sample receiver that verifies, deduplicates, and answers as it is told to."""

import asyncio
import signal
from datetime import UTC, datetime
from typing import Annotated

import typer

from service.cli import answers
from service.cli.options import AsJson, command_app, secret_from
from service.cli.output import plain, print_json_line
from service.cli.receiving import Receiver, Verdict
from service.domain.errors import ConfigurationError, TocsinError
from service.domain.signing import decode_secret

app = command_app()


@app.command()
def receiver(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one.")] = 9000,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    script: Annotated[
        str,
        typer.Option(
            "--answers",
            help="Answers by webhook-id, in turn; the last one repeats: 200, 429:5 (with Retry-After: 5), timeout or "
            "hang (never answers), disconnect (hangs up), refuse (the port accepts nothing; alone only).",
        ),
    ] = "200",
    secret: Annotated[
        str | None,
        typer.Option(
            metavar="env:NAME|file:PATH|-", help="The subscriber's whsec_… secret; without it nothing is verified."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a sample receiver that prints what it makes of each request.

    It verifies the signature (401 where it is wrong), looks the webhook-id up among those it has applied, and answers
    by script. A request that it hangs on or hangs up on counts as applied: only its acknowledgement is lost, so the
    retry is a duplicate. Ctrl-C stops it.
    """
    try:
        steps = answers.parse(script)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--answers") from None
    secrets = [] if secret is None else [_decoded(secret)]
    show = _print_json_line if as_json else _print_line
    server = Receiver(steps, secrets=secrets, report=show)
    asyncio.run(_serve(server, host, port))


async def _serve(server: Receiver, host: str, port: int) -> None:
    """Answer until SIGINT or SIGTERM."""
    try:
        await server.start(host, port)
    except OSError as error:
        detail = f"cannot listen on {host}:{port} ({error.strerror}); choose another with --port."
        raise TocsinError(detail) from None
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"Receiving on http://{shown}:{server.port}/ (Ctrl-C stops).", err=True)
    await stop.wait()
    await server.close()


def _decoded(reference: str) -> bytes:
    """The signing key behind a reference to a whsec_ secret."""
    try:
        return decode_secret(secret_from(reference).decode("utf-8"))
    except ValueError as error:
        detail = f"--secret names no Standard Webhooks secret: {error}"
        raise ConfigurationError(detail) from None


def _signature(verdict: Verdict) -> str:
    if verdict.fault is not None:
        return f"REFUSED: {verdict.fault}"
    return "signature ok" if verdict.checked else "signature not checked"


def _print_line(verdict: Verdict) -> None:
    seen = "duplicate" if verdict.duplicate else "new" if verdict.answer.applies else "not applied"
    now = datetime.now(UTC).strftime("%H:%M:%S")
    parts = (
        now,
        f"{verdict.answer!s:<10}",
        f"{seen:<11}",
        f"request {verdict.request}",
        verdict.key,
        _signature(verdict),
    )
    typer.echo(plain("  ".join(parts)))


def _print_json_line(verdict: Verdict) -> None:
    print_json_line(
        {
            "webhookId": verdict.key,
            "request": verdict.request,
            "signature": "refused" if verdict.fault else "ok" if verdict.checked else "unchecked",
            "fault": verdict.fault,
            "duplicate": verdict.duplicate,
            "applied": verdict.answer.applies and not verdict.duplicate and verdict.fault is None,
            "answer": str(verdict.answer),
        }
    )
