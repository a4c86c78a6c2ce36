"""One attempt at a claimed delivery: sent or not, it ends in a settlement."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import structlog

from service.domain import retry
from service.domain.identifiers import delivery_id, delivery_key
from service.domain.leases import latest_end, longest_attempt
from service.domain.model import (
    Answer,
    Claimed,
    DeliveryState,
    Destination,
    Mode,
    Outcome,
    Policy,
    Settlement,
)
from service.flow.egress import Egress
from service.flow.outbound import Outbound
from service.flow.send import Request, send
from service.store.settlements import Settled

if TYPE_CHECKING:
    from service.flow.tracing import Tracing

log = structlog.get_logger()

UNREADABLE_SECONDS = 60.0
"""How long a lane waits that this worker cannot serve: for a secret it cannot open, or a timeout beyond its lease."""

_NO_POLICY = Policy()
"""Stands in where no subscriber could be read; outcomes of our own are treated alike by every policy."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The moment of a claim by the database's clock, carried on by the monotonic one; and how long its leases live."""

    claimed_at: float
    """In seconds since 1970."""
    started: float
    lease_seconds: float

    def elapsed(self) -> float:
        """Seconds since the claim."""
        return monotonic() - self.started

    def now(self) -> float:
        """The database's time now in seconds since 1970, without asking it."""
        return self.claimed_at + self.elapsed()


class Attempts:
    """Makes attempts; holds nothing but what all of them share."""

    def __init__(
        self,
        egress: Egress,
        worker: str,
        *,
        shadow: bool = False,
        draw: Callable[[], float] = random.random,
        tracing: "Tracing | None" = None,
    ) -> None:
        """`worker` is named in the evidence; with `shadow` nothing at all is sent; `draw` is uniform in [0, 1)."""
        self._egress = egress
        self._worker = worker
        self._shadow = shadow
        self._draw = draw
        self._tracing = tracing

    async def make(self, item: Outbound, clock: Clock) -> Settled:
        """See one delivery through its attempt; also when cancelled, what has to be settled is returned."""
        before = clock.elapsed()
        if item.claimed.lapsed is None and item.claimed.seconds_left <= before:
            decision = Settlement(DeliveryState.EXHAUSTED, counted=False, reason="deadline")
            return Settled(item.claimed, decision, None, self._worker, clock.now())
        if item.claimed.lapsed is None and not item.body:
            decision = Settlement(DeliveryState.REJECTED, counted=False, reason="payload-purged")
            return Settled(item.claimed, decision, None, self._worker, clock.now())
        try:
            answer = await self._answer(item, clock)
        except asyncio.CancelledError:
            answer = _stopped(item.destination)
        except Exception as error:
            delivery = delivery_id(item.claimed.event_id, item.claimed.subscriber)
            log.exception("attempt.broken", delivery=delivery)
            answer = Answer(Outcome.INTERNAL, detail=type(error).__name__)
        return self._settled(item, answer, clock, before)

    def given_back(self, claimed: Claimed, clock: Clock) -> Settled:
        """A delivery that was claimed but cannot be loaded now: due again at once, no attempt counted."""
        answer = Answer(Outcome.INTERRUPTED, detail="the database was lost before the request went out")
        return self._settled(Outbound(claimed, None, b""), answer, clock, clock.elapsed())

    def held(self, claimed: Claimed, clock: Clock) -> Settled:
        """A delivery that was not sent because things changed after its claim; due at once, if it still may be."""
        decision = Settlement(DeliveryState.PENDING, counted=False, delay=0.0)
        return Settled(claimed, decision, None, self._worker, clock.now())

    def put_back(self, claimed: Claimed, clock: Clock) -> Settled:
        """A delivery whose predecessor in the chain was not delivered: it waits again, and was not tried.

        Of a dead worker nobody knows how far it came in the chain; that is recorded, and counted against nobody.
        """
        decision = Settlement(DeliveryState.PENDING, counted=False)
        if claimed.lapsed is None:
            return Settled(claimed, decision, None, self._worker, clock.now())
        answer = Answer(Outcome.IN_DOUBT, detail="the lease ran out while it waited for its turn in a chain")
        return Settled(claimed, decision, answer, claimed.lapsed.worker, claimed.lapsed.started_at)

    async def _answer(self, item: Outbound, clock: Clock) -> Answer:
        claimed, to = item.claimed, item.destination
        if claimed.lapsed is not None:
            return Answer(Outcome.IN_DOUBT, detail="the lease ran out: the worker died or lost the database")
        if to is None or to.unreadable:
            # The lane waits as a whole: nothing in it can be signed until an operator has put the keys right.
            detail = "secret-unreadable" if to else "subscriber-unreadable"
            return Answer(Outcome.INTERNAL, detail=detail, retry_after=UNREADABLE_SECONDS)
        if self._shadow or to.mode is Mode.SHADOW:
            return Answer(Outcome.SHADOW)
        if to.timeout_seconds > longest_attempt(clock.lease_seconds):
            return Answer(Outcome.INTERNAL, detail="lease-too-short", retry_after=UNREADABLE_SECONDS)
        if clock.elapsed() + to.timeout_seconds > latest_end(clock.lease_seconds):
            return Answer(Outcome.INTERRUPTED, detail="too little of the lease was left to start")
        request, traced = _request(claimed, to, item.body), self._tracing
        return await (
            send(self._egress, request)
            if traced is None
            else traced.attempt(claimed, request, partial(send, self._egress))
        )

    def _settled(self, item: Outbound, answer: Answer, clock: Clock, before: float) -> Settled:
        """What came of an attempt that began so many seconds after the claim, and has ended now."""
        claimed, to, after = item.claimed, item.destination, clock.elapsed()
        budget = retry.Budget(claimed.generation_attempts, claimed.seconds_left - after)
        decision = retry.settle(answer, to.policy if to else _NO_POLICY, budget, self._draw())
        slug = to.slug if to else None
        if claimed.lapsed is not None:
            return Settled(claimed, decision, answer, claimed.lapsed.worker, claimed.lapsed.started_at, slug=slug)
        duration_ms = int((after - before) * 1000)
        return Settled(claimed, decision, answer, self._worker, clock.claimed_at + before, duration_ms, slug=slug)


def _stopped(to: Destination | None) -> Answer:
    """The drain is over while the request is out: a receiver that cannot deduplicate must not see it again unasked."""
    if to is None or to.policy.idempotent:
        return Answer(Outcome.INTERRUPTED, detail="the worker stopped before the answer came")
    return Answer(Outcome.DISCONNECTED, detail="the worker stopped before the answer came")


def _request(claimed: Claimed, to: Destination, body: bytes) -> Request:
    return Request(
        to.url,
        delivery_key(claimed.event_id, to.slug),
        body,
        to.secrets,
        claimed.generation,
        claimed.attempt_count + 1,
        to.timeout_seconds,
        str(claimed.run_id) if claimed.run_id else None,
        to.headers,
    )
