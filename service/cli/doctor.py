"""`tocsin doctor`: looks at everything that has to be right, and names the mend of what is not."""

import asyncio
from dataclasses import asdict

import typer

from service.cli.api import DEFAULT_URL, Url
from service.cli.checks import examine
from service.cli.findings import Status
from service.cli.options import AsJson, command_app
from service.cli.output import print_json, print_table

app = command_app()


@app.command()
def doctor(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Check everything that has to be right, and name the mend of what is not.

    Settings, jobs, secrets, database, schema, clocks, egress rules and the API; exit code 1 if one of them fails.

    Nothing is changed. An embedded PostgreSQL that is not running is started for the moment.
    """
    findings = asyncio.run(examine(url))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_table(("", "CHECK", "FINDING"), [(each.status, each.check, each.detail) for each in findings])
    if any(finding.status is Status.FAIL for finding in findings):
        raise typer.Exit(1)
