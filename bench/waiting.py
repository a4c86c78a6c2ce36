"""Waiting for what must come, and no longer than it may take."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

PATIENCE_SECONDS = 120.0
"""What has not happened by then will not, unless it is known to take longer."""
_POLL_SECONDS = 0.01


class Failed(Exception):
    """What was measured did not do what it has to, so that no figure of it counts."""


async def until(question: Callable[[], Awaitable[bool]], what: str, *, patience: float = PATIENCE_SECONDS) -> None:
    """Ask until the answer is yes, for at most `patience` seconds.

    Raises:
        Failed: it never was.

    """
    end = monotonic() + patience
    while not await question():
        if monotonic() > end:
            raise Failed(f"waited {patience:g} s in vain for {what} (BENCH_VERBOSE=1 shows the logs)")
        await asyncio.sleep(_POLL_SECONDS)
