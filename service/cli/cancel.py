"""`tocsin cancel`: calls deliveries off that have not ended."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli.api import DEFAULT_URL, Url
from service.cli.options import AsJson, command_app
from service.cli.verdicts import Because, in_brief, on_each

app = command_app()


@app.command()
def cancel(
    delivery_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The deliveries' ids: dlv_…")],
    reason: Because,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Cancel deliveries that have not ended. What is in flight is not taken back; its answer is kept as evidence.

    Stops at the first that cannot be cancelled, and says which were not tried.
    """

    def told(delivery: Mapping[str, Any]) -> str:
        return in_brief(delivery) + ("" if _kept(delivery, reason) else "; it was so already, and its reason stays")

    on_each(url, delivery_ids, "cancel", {"reason": reason}, as_json=as_json, told=told)


def _kept(delivery: Mapping[str, Any], reason: str) -> bool:
    """Whether the reason stands in the trail: one that was cancelled before keeps its own."""
    return any(each["reason"] == reason.strip() for each in delivery["actions"][-1:])
