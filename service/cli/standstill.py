"""That all dispatch is paused, told to whoever waits for deliveries: without it a bar just stands still."""

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from service.cli.api import Api
from service.cli.output import plain
from service.domain.errors import TocsinError

_LOOK_SECONDS = 5.0


def in_words(since: object, paused_by: object, reason: object) -> str:
    """The pause in a sentence, with its mend."""
    why = f": {reason}" if reason else ", without a reason"
    return (
        f"all dispatch is paused since {since} by {paused_by}{why}. Nothing is sent until it is resumed with "
        "`tocsin resume dispatch`"
    )


class Standstill:
    """Says on stderr, once for each pause, that dispatch is paused."""

    def __init__(self, api: Api) -> None:
        """Ask this API, at most every five seconds."""
        self._api = api
        self._again_at = 0.0
        self._told: object = None

    async def look(self) -> None:
        """Look whether dispatch is paused; an API that does not say so now is asked again later."""
        if time.monotonic() < self._again_at:
            return
        self._again_at = time.monotonic() + _LOOK_SECONDS
        standing: Mapping[str, Any] = {}
        with suppress(TocsinError):
            standing = await self._api.call("GET", "/v1/dispatch")
        if standing.get("paused") and standing["since"] != self._told:
            self._told = standing["since"]
            said = in_words(standing["since"], standing["pausedBy"], standing["reason"])
            sys.stderr.write(f"{plain(said)}.\n")
