"""The drill's stage: what every sequence plays on, all of it the drill's own, and cleared away afterwards."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from service.cli import answers
from service.cli.api import Api, ApiRefused
from service.cli.drill_evidence import Check, Delivery, Overdue, Verdict, cite
from service.cli.drill_receiver import Recorder, Request
from service.cli.drill_timeline import Timeline
from service.cli.progress import DEAD_LETTERS, TERMINAL
from service.domain.errors import ConfigurationError, TocsinError, Unavailable
from service.domain.signing import decode_secret, new_secret

TENANT = "drill"
QUICK: Mapping[str, Any] = {"backoffBaseSeconds": 0.1, "backoffCapSeconds": 0.2}
"""Retries that come at once: what is rehearsed is what happens, not how long one waits for it."""

_TIMEOUTS = {7.5: 5.0, 3.0: 2.0, 1.5: 1.0, 0.75: 0.5}
"""By what must fit the lease here, which the last does with the shortest that may be set: `timeoutSeconds` as it is
used, less than that, so that on a busy machine an attempt may start late in its lease."""

REASON = "tocsin drill"
_POLL_SECONDS = 0.2
_AT_ONCE = 20
_CITED = 3
_EVERYTHING = 100_000


@dataclass(slots=True)
class Target:
    """One subscriber of the drill and its receiver."""

    id: str
    receiver: Recorder
    type: str

    @property
    def requests(self) -> list[Request]:
        """What the receiver has seen."""
        return self.receiver.requests


@dataclass(slots=True)
class Stage:
    """What the sequences share. `ringer` is a client without a key, as a scheduler has none; `patience` is in seconds.

    `host` is where Tocsin reaches this machine, and where the receivers listen.
    """

    api: Api
    ringer: Api
    host: str
    patience: float
    timeline: Timeline
    tag: str = field(default_factory=lambda: f"{int(time.time()):x}-{secrets.token_hex(2)}")
    targets: list[Target] = field(default_factory=list[Target])
    events: int = 0
    workers: set[str] = field(default_factory=set[str])
    """Who has made attempts in this drill, each as HOST:PID."""
    attempt_seconds: float | None = None
    """The longest `timeoutSeconds` of the drill's subscribers; found out with the first of them."""
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    """On the sequences that have ended, in this order."""
    dues: Counter[str] = field(default_factory=Counter[str])
    """How many events of each type wait for a run to find them, or waited."""
    unfound: int = 0
    """How many of them no run had found when the stage was cleared."""

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request; "not now" is asked again, as often as patience allows.

        Raises:
            TocsinError: it was refused, or nobody answered for so long.

        """
        ends = time.monotonic() + self.patience
        while True:
            try:
                return await self.api.call(method, path, body=body)
            except Unavailable:
                if time.monotonic() >= ends:
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    async def register(self, target: Target, body: Mapping[str, Any]) -> None:
        """Register a target, with the `timeoutSeconds` of the body or what an attempt may take here if that is less.

        Raises:
            TocsinError: it was refused, or nobody answered.

        """
        path = f"/v1/subscribers/{target.id}"
        if self.attempt_seconds is None:
            self.attempt_seconds = await self._fitting(path, body)
        timeout = min(body.get("timeoutSeconds", self.attempt_seconds), self.attempt_seconds)
        await self.call("PUT", path, {**body, "timeoutSeconds": timeout})

    async def _fitting(self, path: str, body: Mapping[str, Any]) -> float:
        """What is used for the longest timeout that is not refused, as a lease bounds it and no other setting."""
        for longest, used in _TIMEOUTS.items():
            try:
                await self.call("PUT", path, {**body, "timeoutSeconds": longest})
            except ApiRefused as refusal:
                if [pointer for pointer, _ in refusal.faults] != ["/timeoutSeconds"]:
                    raise
            else:
                return used
        return min(_TIMEOUTS.values())

    async def deliveries(self, target: Target) -> list[Delivery]:
        """All deliveries to a target, oldest first; nothing while the API cannot say."""
        try:
            found = await self.api.items("/v1/deliveries", _EVERYTHING, {"subscriberId": target.id})
        except Unavailable:
            return []
        return list(reversed(found))

    async def full(self, delivery: Delivery) -> Delivery:
        """The delivery with its evidence."""
        shown: Delivery = await self.call("GET", f"/v1/deliveries/{quote(delivery['id'], safe='')}")
        self.workers |= {attempt["worker"].rpartition(":")[0] for attempt in shown["attempts"]}
        return shown

    async def clear(self) -> list[str]:
        """Take the subscribers away and close the drill's dead letters; gives back what could not be."""
        left = []
        for target in self.targets:
            try:
                await self._close(target)
            except TocsinError as refusal:
                left.append(f"{target.id} ({refusal.detail})")
            await target.receiver.close()
        return left

    async def _close(self, target: Target) -> None:
        found = await self.api.items("/v1/deliveries", _EVERYTHING, {"subscriberId": target.id})
        self.unfound += max(self.dues[target.type] - len(found), 0)
        for delivery in found:
            if delivery["state"] in DEAD_LETTERS:
                body = {"resolution": "cancelled", "reason": f"{REASON}: it is over"}
                await self.api.call("POST", f"/v1/deliveries/{quote(delivery['id'], safe='')}/resolve", body=body)
        await self.api.call("DELETE", f"/v1/subscribers/{target.id}")


class Scene:
    """One sequence on the stage: its own event types, subscribers and receivers."""

    def __init__(self, stage: Stage, slug: str) -> None:
        """Nothing is registered yet."""
        self.stage = stage
        self.slug = slug
        self._published = 0

    def note(self, what: str) -> None:
        """Add a line to the timeline."""
        self.stage.timeline.note(self.slug, what)

    def _type(self, topic: str) -> str:
        return f"drill.{self.stage.tag}.{self.slug}.{topic}"

    async def subscriber(
        self, script: str, name: str = "a", *, topic: str = "all", every: int = 1, quiet: bool = False, **policy: Any
    ) -> Target:
        """Open a receiver that answers by `script`, and register it for the events of a topic."""
        secret = new_secret(secrets.token_bytes(32))
        told = _silent if quiet else self._told(name)
        receiver = Recorder(answers.parse(script), decode_secret(secret), told, every=every)
        try:
            await receiver.start(self.stage.host)
        except OSError as error:
            detail = f"cannot listen on {self.stage.host} ({error.strerror}): name another with --receiver-host."
            raise ConfigurationError(detail) from None
        target = Target(f"drill-{self.stage.tag}-{self.slug}-{name}", receiver, self._type(topic))
        self.stage.targets.append(target)
        body = {"url": self._url(receiver), "tenantId": TENANT, "eventTypes": [target.type], "secret": secret}
        await self.stage.register(target, {**body, **QUICK, **policy})
        return target

    def _url(self, receiver: Recorder) -> str:
        host = f"[{self.stage.host}]" if ":" in self.stage.host else self.stage.host
        return f"http://{host}:{receiver.port}/drill"

    def _told(self, name: str) -> Callable[[Request], None]:
        def told(request: Request) -> None:
            which = f"attempt {request.attempt}, generation {request.generation}"
            self.note(f"receiver {name}: {which} of …{request.key.partition(':')[0][-6:]} → {request.answer}")

        return told

    async def publish(self, count: int = 1, *, topic: str = "all", due_at: str | None = None) -> None:
        """Publish new events; with `due_at` they wait for a run of an outbox job."""
        numbers = range(self._published + 1, self._published + count + 1)
        self._published += count
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(number: int) -> None:
            async with room:
                await self.stage.call("POST", "/v1/events", self.event(number, topic=topic, due_at=due_at))
                self.stage.dues[self._type(topic)] += due_at is not None

        await asyncio.gather(*(one(number) for number in numbers))
        self.stage.events += count

    def event(self, number: int, *, topic: str = "all", due_at: str | None = None) -> dict[str, Any]:
        """The event of this number, the same whenever it is asked for."""
        event = {
            "tenantId": TENANT,
            "type": self._type(topic),
            "subject": f"{self.slug}-{number}",
            "version": 1,
            "data": {"drill": self.stage.tag, "sequence": self.slug, "number": number},
        }
        return event if due_at is None else {**event, "dueAt": due_at}

    async def steer(self, target: Target, verb: str) -> None:
        """Pause or resume a target."""
        await self.stage.call("POST", f"/v1/subscribers/{target.id}/{verb}", {"reason": REASON})
        self.note(f"{verb} {target.id}")

    async def until(
        self, target: Target, promise: str, wanted: Callable[[Sequence[Delivery]], bool], *, more: float = 0
    ) -> list[Delivery]:
        """The target's deliveries as the list shows them, once they are as wanted.

        Raises:
            Overdue: they are not within the stage's patience and `more` seconds.

        """
        patience = self.stage.patience + more
        ends = time.monotonic() + patience
        while True:
            found = await self.stage.deliveries(target)
            if wanted(found):
                return found
            if time.monotonic() >= ends:
                rows = tuple(cite(each) for each in found[:_CITED]) or (f"no delivery to {target.id}",)
                raise Overdue(Check(f"{promise} within {patience:.0f} s", held=False, rows=rows))
            await asyncio.sleep(_POLL_SECONDS)

    async def ended(self, target: Target, count: int, *, more: float = 0) -> list[Delivery]:
        """So many deliveries to the target, all of them terminal, as the list shows them."""

        def wanted(found: Sequence[Delivery]) -> bool:
            return len(found) == count and all(each["state"] in TERMINAL for each in found)

        return await self.until(target, f"{count} deliveries have ended", wanted, more=more)

    async def settled(self, target: Target, count: int = 1, *, more: float = 0) -> list[Delivery]:
        """The same with their evidence: for few of them."""
        found = [await self.stage.full(each) for each in await self.ended(target, count, more=more)]
        self.note(f"{target.id}: " + "; ".join(cite(each) for each in found[:_CITED]) + _and_more(len(found)))
        return found

    async def seen(self, target: Target, count: int = 1) -> None:
        """Wait until the target's receiver has had so many requests.

        Raises:
            Overdue: it has not, within the stage's patience.

        """
        ends = time.monotonic() + self.stage.patience
        while len(target.requests) < count:
            if time.monotonic() >= ends:
                promise = f"the receiver gets {count} requests within {self.stage.patience:.0f} s"
                raise Overdue(Check(promise, held=False, rows=(f"{target.id}: {len(target.requests)} came",)))
            await asyncio.sleep(_POLL_SECONDS / 4)


@dataclass(frozen=True, slots=True)
class Act:
    """One sequence of the drill: its name, what is promised, and how it is played."""

    slug: str
    promise: str
    play: Callable[[Scene], Awaitable[list[Check]]]


def _and_more(count: int) -> str:
    return f"; and {count - _CITED} more" if count > _CITED else ""


def _silent(request: Request) -> None:
    """Say nothing of a request: there are too many of them."""
