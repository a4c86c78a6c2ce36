"""`tocsin sign`: prints a tick's signature, or explains why a tick was refused."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import acceptable_run_id, command_app
from service.cli.output import plain
from service.cli.refused import MAX_BODY_BYTES, judge
from service.cli.tick_secrets import SecretOrAll, known_job, known_keys, signing_secret
from service.domain.signing import tick_signature
from service.domain.timestamps import parse_rfc3339

app = command_app()

_RIGHT = (
    "Nothing is wrong with this tick: its signature matches. The server may still answer 409, where this runId was "
    "claimed with another cutoff."
)


def _acceptable_cutoff(value: str | None) -> str | None:
    """The cutoff as it was given; what no server ever takes is not signed."""
    try:
        if value is not None:
            parse_rfc3339(value)
    except ValueError as fault:
        raise typer.BadParameter(f"such a cutoff is never taken as RFC 3339: it {fault}") from None
    return value


@app.command()
def sign(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name in tocsin.toml.")],
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="RUN_ID", help="The run id exactly as it is sent.", callback=acceptable_run_id),
    ] = None,
    cutoff: Annotated[
        str | None,
        typer.Argument(
            metavar="CUTOFF",
            help="cutoffIso exactly as it is sent: RFC 3339 with an offset.",
            show_default=False,
            callback=_acceptable_cutoff,
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            metavar="TICK",
            help="Explain why this tick was refused: its JSON body, a file with it, or - for stdin. In place of "
            "RUN_ID and CUTOFF.",
        ),
    ] = None,
    secret: SecretOrAll = None,
) -> None:
    """Print the signature of a tick: hex of HMAC-SHA256 over RUN_ID.CUTOFF.

    With --explain: exit code 0 where nothing is wrong with the tick; else 1 and what is, as far as it can be found
    out: a line end that was signed too, base64 in place of hex, OpenSSL's prefix, a cutoff that was written anew,
    another job's secret and so on. The API never says any of this to a caller. Nothing is sent.
    """
    if explain is None and run_id is not None and cutoff is not None:
        typer.echo(tick_signature(signing_secret(job, secret), run_id, cutoff))
        return
    if explain is None or run_id is not None:
        raise typer.BadParameter("give RUN_ID and CUTOFF to sign them, or --explain TICK to have a tick judged")
    if explain == secret == "-":
        raise typer.BadParameter("stdin can be the tick or the secret, not both")
    finding = judge(_body(explain), job, known_job(job, secret), known_keys(job, secret), datetime.now(UTC))
    typer.echo(plain(" ".join(finding.mistakes) or _RIGHT))
    if not finding.matches:
        raise typer.Exit(1)


def _body(given: str) -> bytes:
    """The body of the tick, to one byte more than the API takes."""
    if given == "-":
        return sys.stdin.buffer.read(MAX_BODY_BYTES + 1)
    if given.lstrip()[:1] in {"{", "[", '"', "'"}:
        return given.encode("utf-8", "surrogateescape")
    try:
        with Path(given).open("rb") as file:
            return file.read(MAX_BODY_BYTES + 1)
    except (OSError, ValueError):
        raise typer.BadParameter(
            "--explain takes the tick's JSON body, the name of a file with it, or -; there is no such file"
        ) from None
