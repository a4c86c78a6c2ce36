"""`tocsin cancel`: calls deliveries off that have not ended."""

from typing import Annotated

import typer

from service.cli.api import DEFAULT_URL, Url
from service.cli.options import AsJson, command_app
from service.cli.output import plain, print_json
from service.cli.verdicts import Because, in_brief, on_delivery

app = command_app()


@app.command()
def cancel(
    delivery_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The deliveries' ids: dlv_…")],
    reason: Because,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Cancel deliveries that have not ended. What is in flight is not taken back; its answer is kept as evidence.

    Stops at the first that cannot be cancelled.
    """
    done = [on_delivery(url, each, "cancel", {"reason": reason}) for each in delivery_ids]
    if as_json:
        print_json(done)
    else:
        typer.echo("\n".join(plain(in_brief(each)) for each in done))
