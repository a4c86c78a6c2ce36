"""Follows one thing of the API until it is over: asks again and again, and shows it as a bar or as lines."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from service.cli.api import Api
from service.cli.output import plain
from service.domain.errors import Unavailable

_POLL_SECONDS = 0.5
_LINE_SECONDS = 3.0
_PATIENCE_POLLS = 60
"""Failed polls in a row before following gives up: half a minute of an API that is away."""

Thing: TypeAlias = Mapping[str, Any]
Show: TypeAlias = Callable[[Thing], None]


@dataclass(frozen=True, slots=True)
class Look:
    """How a thing is shown: by a `bar` on a terminal, elsewhere in the words of `describe` when its `state` changed."""

    bar: Callable[[], AbstractContextManager[Show]]
    describe: Callable[[Thing], str]
    state: Callable[[Thing], str]


async def followed(api: Api, path: str, look: Look, over: Callable[[Thing], Awaitable[bool]]) -> Thing:
    """Poll what is at this path and show it until it is `over`; give back how it was then.

    Raises:
        TocsinError: it is not there.
        Unavailable: the API stayed away for half a minute.

    """
    missed = 0
    with _display(look) as show:
        while True:
            try:
                found: Thing = await api.call("GET", path)
            except Unavailable:
                missed += 1
                if missed >= _PATIENCE_POLLS:
                    raise
            else:
                missed = 0
                show(found)
                if await over(found):
                    return found
            await asyncio.sleep(_POLL_SECONDS)


@contextmanager
def _display(look: Look) -> Iterator[Show]:
    """A function that shows a thing: a live bar on a terminal, else one line whenever something changed."""
    if sys.stderr.isatty():
        with look.bar() as show:
            yield show
    else:
        yield _Lines(look)


class _Lines:
    """Prints a thing when it has entered another state, and every few seconds in between, for logs and pipes."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._state = ""
        self._again_at = 0.0

    def __call__(self, thing: Thing) -> None:
        state = self._look.state(thing)
        if state != self._state or time.monotonic() >= self._again_at:
            sys.stderr.write(plain(self._look.describe(thing)) + "\n")
            self._state, self._again_at = state, time.monotonic() + _LINE_SECONDS
