"""Waiting for what must come, and no longer than it may take."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

PATIENCE_SECONDS = 120.0
"""What has not happened by then will not."""
_POLL_SECONDS = 0.01


class Failed(Exception):
    """What was measured did not do what it has to, so that no figure of it counts."""


async def until(question: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask until the answer is yes.

    Raises:
        Failed: it never was.

    """
    end = monotonic() + PATIENCE_SECONDS
    while not await question():
        if monotonic() > end:
            raise Failed(f"waited {PATIENCE_SECONDS:g} s in vain for {what} (BENCH_VERBOSE=1 shows the logs)")
        await asyncio.sleep(_POLL_SECONDS)
