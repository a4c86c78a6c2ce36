"""Looks names up in threads of its own, so that a silent name server holds up neither other names nor the exit."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives every address of a host, best first; raises Unresolved or Unready."""

LookUp = Callable[[str, int], Sequence[str]]
"""The same, blocking, with the errors of `socket.getaddrinfo`."""

_NO_SUCH_NAME: Final = frozenset({socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY})
_OURS: Final = frozenset({socket.EAI_MEMORY, socket.EAI_SYSTEM})


SILENT_SECONDS: Final = 60.0
"""A resolver that has answered nobody for so long is taken to be down: our fault, not that of the name it was asked."""


class Unresolved(Exception):
    """The name has no address that could be called, or its name server does not say."""


class Silent(Unresolved):
    """No answer came; whether the name's server or the resolver is down depends on how others fare."""


class Unready(Exception):
    """This process cannot send just now, for a reason of its own."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A look-up that is under way."""

    future: "asyncio.Future[Sequence[str] | Unresolved | Unready]"
    """Holds a fault as a value, so that it is no loss if nobody waits for it any more."""
    until: float
    """When its callers give up, on the monotonic clock."""


class Resolver:
    """A bounded number of look-ups at once, one a host; as it is called it is a `Resolve`."""

    def __init__(self, *, threads: int = 128, timeout_seconds: float = 5.0, look_up: LookUp | None = None) -> None:
        """Prepare; a thread lives only as long as its look-up, which may outlast the time that callers wait."""
        self._threads = threads
        self._timeout_seconds = timeout_seconds
        self._look_up = look_up or _system_look_up
        self._flights: dict[tuple[str, int], _Flight] = {}
        self._answered_at: float | None = None

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Every address of the host.

        Raises:
            Unresolved: there is none, or no answer came in time while others get theirs.
            Unready: too many look-ups hang, nobody gets an answer, or the machine is short of something.

        """
        try:
            return await self._ask(host, port)
        except Silent as silent:
            if self._answered_at is not None and monotonic() - self._answered_at < SILENT_SECONDS:
                raise
            message = f"{silent}; the resolver has answered nobody for a while"
            raise Unready(message) from None

    async def _ask(self, host: str, port: int) -> Sequence[str]:
        flight = self._flights.get((host, port)) or self._start(host, port)
        try:
            # Who joins a look-up that has hung for long does not wait for it again.
            async with asyncio.timeout(max(flight.until - monotonic(), 0.0)):
                found = await asyncio.shield(flight.future)
        except TimeoutError:
            message = f"dns: no answer within {self._timeout_seconds:g} s"
            raise Silent(message) from None
        if isinstance(found, Unresolved | Unready):
            raise type(found)(*found.args)
        return found

    def _start(self, host: str, port: int) -> _Flight:
        if len(self._flights) >= self._threads:
            message = "dns: too many look-ups are waiting for name servers"
            raise Unready(message)
        loop = asyncio.get_running_loop()
        flight = _Flight(loop.create_future(), monotonic() + self._timeout_seconds)
        thread = threading.Thread(target=self._fly, args=(host, port, loop, flight), name="look-up", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            message = "dns: this machine has no room for another thread"
            raise Unready(message) from None
        self._flights[host, port] = flight
        return flight

    def _fly(self, host: str, port: int, loop: asyncio.AbstractEventLoop, flight: _Flight) -> None:
        """Look up, in a thread, and land on the loop."""
        try:
            found: Sequence[str] | Unresolved | Unready = self._look_up(host, port)
        except Exception as error:  # noqa: BLE001 -- whatever it was, the look-up must land
            found = _judged(error)
        try:
            loop.call_soon_threadsafe(self._land, host, port, flight, found)
        except RuntimeError:
            return  # The loop has ended meanwhile: nobody is left to tell.

    def _land(self, host: str, port: int, flight: _Flight, found: Sequence[str] | Unresolved | Unready) -> None:
        self._flights.pop((host, port), None)
        if not isinstance(found, Silent | Unready):
            self._answered_at = monotonic()
        if not flight.future.done():
            flight.future.set_result(found)


def _system_look_up(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _judged(error: Exception) -> Unresolved | Unready:
    if isinstance(error, UnicodeError):
        return Unresolved("dns: not a name that can be looked up")
    if not isinstance(error, socket.gaierror) or error.errno in _OURS:
        return Unready("dns: this machine cannot look names up just now")
    if error.errno in _NO_SUCH_NAME:
        return Unresolved("dns: no such name")
    if error.errno == socket.EAI_AGAIN:
        return Silent("dns: the name server did not answer")
    return Unresolved("dns: look-up failed")
