"""What stands in the way of deliveries, told to whoever waits for them: without it a bar just stands still."""

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from service.cli.api import Api
from service.cli.output import plain
from service.domain.errors import TocsinError
from service.domain.mends import HELD
from service.domain.model import HeldBy

_LOOK_SECONDS = 5.0
_LOOKED_AT = 50
_BY_HAND = frozenset({HeldBy.SUBSCRIBER_PAUSED, HeldBy.SUBSCRIBER_DISABLED, HeldBy.PREDECESSOR})
"""What need not pass by itself; a predecessor mostly does, and so only a run that stands still is looked at."""


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


class Held:
    """Says on stderr, once for each subscriber and cause, what the last deliveries of a run wait for."""

    def __init__(self, api: Api, run_id: str) -> None:
        """Ask this API about this run, at most every five seconds, and only while none of its deliveries move."""
        self._api = api
        self._run_id = run_id
        self._again_at = 0.0
        self._counts: object = None
        self._told: set[tuple[str, str]] = set()

    async def look(self, run: Mapping[str, Any]) -> None:
        """Look at the newest pending deliveries of the run, which stands so now, where nothing has moved since."""
        if time.monotonic() < self._again_at or run["state"] != "completed":
            return
        self._again_at = time.monotonic() + _LOOK_SECONDS
        before, self._counts = self._counts, run["deliveries"]
        if before == self._counts:
            await self._tell()

    async def _tell(self) -> None:
        pending: list[dict[str, Any]] = []
        with suppress(TocsinError):
            pending = await self._api.items("/v1/deliveries", _LOOKED_AT, {"runId": self._run_id, "state": "pending"})
        for each in pending:
            what = (each["subscriberId"], each["heldBy"])
            if each["heldBy"] in _BY_HAND and what not in self._told:
                self._told.add(what)
                mend = HELD[HeldBy(each["heldBy"])].format(slug=each["subscriberId"], key=each["key"])
                sys.stderr.write(plain(f"{each['id']} to {each['subscriberId']} waits. {mend}") + "\n")
