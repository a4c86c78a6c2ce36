"""`tocsin dispatch`: whether deliveries are claimed at all, and what is in flight."""

import asyncio
from collections.abc import Mapping
from typing import Any

from service.cli.api import DEFAULT_URL, Url
from service.cli.options import AsJson, command_app
from service.cli.output import print_fields, print_json
from service.cli.verdicts import called

app = command_app()


@app.command()
def dispatch(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show whether dispatch is paused, since when, by whom and why, and how many deliveries are in flight.

    While it is paused, `in flight` only falls; at 0 nothing is being sent. `tocsin pause dispatch` and `tocsin resume
    dispatch` change it.
    """
    standing = asyncio.run(called(url, "GET", "/v1/dispatch"))
    if as_json:
        print_json(standing)
    else:
        print_fields(_shown(standing))


def _shown(standing: Mapping[str, Any]) -> dict[str, Any]:
    since = {"since": standing["since"], "by": standing["pausedBy"], "reason": standing["reason"]}
    mend = {"to go on": "tocsin resume dispatch"} if standing["paused"] else {}
    return {"dispatch": "paused" if standing["paused"] else "runs", **since, "in flight": standing["leased"], **mend}
