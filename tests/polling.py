"""Waiting for something to become true, with a deadline instead of a sleep."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.1


@overload
async def eventually(check: Callable[[], Awaitable[T]], *, seconds: float = ...) -> T: ...


@overload
async def eventually(check: Callable[[], T], *, seconds: float = ...) -> T: ...


async def eventually(check: Callable[[], Any], *, seconds: float = 10.0) -> Any:
    """Call `check` until it gives something truthy, and return that.

    A falsy answer or a failed `assert` means "not yet"; any other exception is a failure at once.

    Raises:
        AssertionError: not within `seconds`; the message holds the last answer.

    """
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, _FIRST_PAUSE
    while True:
        failure: AssertionError | None = None
        answer: Any = None
        try:
            found = check()
            answer = await found if inspect.isawaitable(found) else found
        except AssertionError as error:
            failure = error
        if answer:
            return answer
        if loop.time() >= deadline:
            message = f"not within {seconds} s; last answer: {answer!r}"
            raise AssertionError(message) from failure
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
