"""`tocsin sign`: prints a tick's signature, or explains why another one does not match."""

import sys
from typing import Annotated

import typer

from service.cli.mismatch import explain
from service.cli.options import acceptable_run_id, command_app
from service.cli.output import plain
from service.cli.tick_secrets import Secret, known_keys
from service.domain.signing import tick_signature

app = command_app()

_MAX_SIGNATURE = 4096


@app.command()
def sign(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name in tocsin.toml.")],
    run_id: Annotated[
        str,
        typer.Argument(metavar="RUN_ID", help="The run id exactly as it is sent.", callback=acceptable_run_id),
    ],
    cutoff: Annotated[str, typer.Argument(metavar="CUTOFF", help="cutoffIso exactly as it is sent.")],
    expect: Annotated[
        str | None,
        typer.Option(metavar="SIGNATURE", help="Compare with this signature, and explain a mismatch (- reads stdin)."),
    ] = None,
    secret: Secret = None,
) -> None:
    """Print the signature of a tick: hex of HMAC-SHA256 over RUN_ID.CUTOFF.

    With --expect: exit code 0 where the signatures agree; else 1 and what went wrong, as far as it can be found out:
    a line end that was signed too, base64 in place of hex, OpenSSL's prefix, another job's secret and so on. The
    API never says any of this to a caller.
    """
    keys = known_keys(job, secret)
    if expect is None:
        typer.echo(tick_signature(keys[0].secret, run_id, cutoff))
        return
    supplied = sys.stdin.read(_MAX_SIGNATURE).removesuffix("\n") if expect == "-" else expect
    finding = explain(supplied, job, run_id, cutoff, keys)
    if finding.matches:
        typer.echo("The signature matches.")
        return
    typer.echo(plain("The signature does not match. " + " ".join(finding.mistakes)))
    raise typer.Exit(1)
