"""Work that several wait for is done once, and outlives each of those who wait."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Flights(Generic[Key, Value]):
    """At most one task a key; when it has landed, the next caller starts anew."""

    def __init__(self) -> None:
        """Begin with nothing under way."""
        self._tasks: dict[Key, asyncio.Task[Value]] = {}

    async def join(self, key: Key, work: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """What the work under this key gives, or raises; `work` starts it where none is under way."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._landed(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel what is under way, and those who wait for it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _landed(self, key: Key, task: asyncio.Task[Value]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # Seen here, so that a fault for which nobody waits any more is not reported as lost.
