"""The operators of a chaos run: they pause and resume, replay and cancel, and finish what they began, nothing more."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.chaos.cast import CAST
from tests.chaos.house import House

_REASON = {"reason": "chaos"}
_STATES = ("delivered", "exhausted", "rejected", "ambiguous", "cancelled")
_PAUSED_SECONDS = 2.5


@dataclass(frozen=True, slots=True)
class Pause:
    """A confirmed pause of one subscriber, or of all of them where it is None; seconds of this machine's clock."""

    subscriber: str | None
    confirmed: float
    over: float


class Operators:
    """One pair of hands, which does one thing after another until it is told to stop."""

    def __init__(self, house: House, seed: int) -> None:
        self._house = house
        self._draw = random.Random(f"{seed}/operators")  # noqa: S311
        self._enough = asyncio.Event()
        self.pauses: list[Pause] = []
        self.done: Counter[str] = Counter()

    def stop(self) -> None:
        """Begin nothing more."""
        self._enough.set()

    async def work(self) -> None:
        """Do things, as the seed has it."""
        deeds: tuple[Callable[[], Awaitable[None]], ...] = (
            *(self._pause_one, self._pause_all, self._replay, self._replay, self._replay),
            *(self._cancel, self._cancel, self._cancel_and_replay, self._replay_many),
        )
        while not self._enough.is_set():
            try:
                await self._draw.choice(deeds)()
            except TimeoutError:
                self.done["nobody answered"] += 1
            await self._rest(self._draw.uniform(0.1, 0.6))

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._enough.wait()
        except TimeoutError:
            pass

    async def _pause_one(self) -> None:
        player = self._draw.choice(CAST).id
        await self._pause(player, f"/v1/subscribers/{player}")

    async def _pause_all(self) -> None:
        await self._pause(None, "/v1/dispatch")

    async def _pause(self, subscriber: str | None, path: str) -> None:
        """Pause, and resume whatever happens meanwhile."""
        await self._house.call("POST", f"{path}/pause", _REASON)
        confirmed = time.time()
        await self._rest(_PAUSED_SECONDS)
        self.pauses.append(Pause(subscriber, confirmed, time.time()))
        await self._house.call("POST", f"{path}/resume", _REASON)
        self.done["paused and resumed"] += 1

    async def _replay(self) -> None:
        for delivery in await self._some(self._draw.choice(_STATES), 2):
            await self._do(delivery, "replay")

    async def _cancel(self) -> None:
        for delivery in await self._some(self._draw.choice(("pending", "leased")), 2):
            await self._do(delivery, "cancel")

    async def _cancel_and_replay(self) -> None:
        """Call one off while its request is under way, and send it again at once."""
        for delivery in await self._some("leased", 1):
            await self._do(delivery, "cancel")
            await self._do(delivery, "replay")

    async def _replay_many(self) -> None:
        state, player = self._draw.choice(_STATES[1:]), self._draw.choice(CAST).id
        wanted = {"filter": {"state": state, "subscriberId": player}, "ratePerSecond": 200, **_REASON}
        answer = await self._house.call("POST", "/v1/replays", wanted, patient=False)
        self.done[f"replayed many: {answer.status_code}"] += 1

    async def _some(self, state: str, count: int) -> list[str]:
        found = [each["id"] for each in await self._house.items(f"/v1/deliveries?state={state}&limit=50")]
        return self._draw.sample(found, min(count, len(found)))

    async def _do(self, delivery: str, verb: str) -> None:
        answer = await self._house.call("POST", f"/v1/deliveries/{delivery}/{verb}", _REASON, patient=False)
        self.done[f"{verb}: {answer.status_code}"] += 1
