"""The applications of a chaos run: they publish events, and tick the job that finds others; neither gives up."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from service.domain.signing import tick_signature
from tests.chaos.house import JOB, TICK_SECRET, House
from tests.chaos.plan import EventName, Planned, Span, chance

_PUBLISHERS = 8
_BATCH = 100
"""A run finds at most about half of so many events."""
_TWICE = 0.2
"""The share of ticks that come a second time, as schedulers have it."""


class Traffic:
    """Feeds the events of the plan in their order, never further than it is allowed to."""

    def __init__(self, house: House, events: Sequence[Planned]) -> None:
        self._house = house
        self._events = events
        self._allowed = 0
        self._fed = 0
        self._more = asyncio.Event()
        self.published: dict[EventName, Span] = {}
        """When each event was first offered to the API, and when it was confirmed."""

    def allow(self, share: float) -> None:
        """Let the traffic go on up to this share of all events."""
        self._allowed = max(self._allowed, round(share * len(self._events)))
        self._more.set()

    async def flow(self) -> None:
        """Feed all of it; ends when the API has confirmed the last one."""
        while self._fed < len(self._events):
            until = min(self._allowed, self._fed + _BATCH)
            if until == self._fed:
                self._more.clear()
                await self._more.wait()
                continue
            batch = self._events[self._fed : until]
            await asyncio.gather(self._tick(batch), *(self._publish(batch[n::_PUBLISHERS]) for n in range(_PUBLISHERS)))
            self._fed = until

    async def _publish(self, batch: Sequence[Planned]) -> None:
        for event in batch:
            if event.tick:
                continue
            body = {
                "type": event.type,
                "subject": event.subject,
                "version": event.number,
                "data": {"number": event.number},
            }
            offered = time.time()
            answer = await self._house.call("POST", "/v1/events", body)
            assert answer.status_code in {200, 201}, answer.text
            self.published[event.name] = offered, time.time()

    async def _tick(self, batch: Sequence[Planned]) -> None:
        due = [event for event in batch if event.tick]
        if not due:
            return
        await self._house.server.ask(
            "INSERT INTO public.things (number, subject, due_at) SELECT *, now() - interval '1 minute' "
            "FROM unnest(CAST(:numbers AS bigint[]), CAST(:subjects AS text[])) ON CONFLICT DO NOTHING",
            numbers=[event.number for event in due],
            subjects=[event.subject for event in due],
        )
        run_id, cutoff = f"chaos-{due[0].number}", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            "runId": run_id,
            "cutoffIso": cutoff,
            "signature": tick_signature(TICK_SECRET.encode(), run_id, cutoff),
        }
        for _ in range(2 if chance(run_id) < _TWICE else 1):
            answer = await self._house.call("POST", f"/v1/jobs/{JOB}/ticks", body)
            assert answer.status_code in {200, 202}, answer.text
