"""`tocsin reconcile`: the report of everything that no healthy system would show."""

import asyncio
from typing import Any

import typer

from service.cli.api import DEFAULT_URL, Api, Url, api_key
from service.cli.findings import some
from service.cli.options import AsJson, command_app
from service.cli.output import complain, print_json, print_table

app = command_app()

_MOST = 1_000


@app.command()
def reconcile(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Look for records that no healthy system would show, and name the mend of each.

    Exit code 1 where there are any, or where a look was cut short. Nothing is changed.
    """
    report = asyncio.run(_report(url))
    if as_json:
        print_json(report)
    else:
        rows = [_row(finding) for finding in report["findings"]]
        print_table(("KIND", "COUNT", "WHAT", "EXAMPLES", "MEND"), rows, empty="Nothing found: the records agree.")
        if report["unchecked"]:
            complain(f"no answer in time: {', '.join(report['unchecked'])}; ask again when the database is less busy.")
    if report["findings"] or report["unchecked"]:
        raise typer.Exit(1)


async def _report(url: str) -> dict[str, Any]:
    async with Api(url, api_key()) as api:
        report: dict[str, Any] = await api.call("GET", "/v1/reconciliation")
        return report


def _row(finding: dict[str, Any]) -> tuple[object, ...]:
    count = f"{finding['count']:,}" + ("+" if finding["count"] >= _MOST else "")
    return finding["kind"], count, finding["detail"], some(finding["examples"], most=3), finding["mend"]
