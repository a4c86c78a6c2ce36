"""The outermost layer: no exception leaves as a stack trace, nobody keeps a connection whose body nobody reads."""

import asyncio
import traceback

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.domain.errors import TocsinError, Unavailable
from service.web.problems import Internal, render

log = structlog.get_logger()

ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
"""Headers of every answer."""


MOST_UNDER_WAY = 1_000
"""Requests that a process serves at once. More would only wait for one another until all of them are too late."""

UNREFUSED = frozenset({"/livez", "/readyz", "/metrics"})
"""Whoever asks these has to be told that it is busy, and not that it is gone."""


def log_failure(method: str, error: Exception) -> None:
    """Log what nobody expected: its class and place, since its message may hold what a request or a statement held."""
    stack = "".join(traceback.format_tb(error.__traceback__))
    log.error("request.failed", method=method, error=type(error).__qualname__, exception=stack)


class Edge:
    """Wraps the app: answers for what it could not handle or has no room for, and closes behind an unread body."""

    def __init__(self, app: ASGIApp, most: int = MOST_UNDER_WAY) -> None:
        """Stand before `app`, which serves at most so many requests at once."""
        self._app = app
        self._most = most
        self._under_way = 0
        self._full = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; lifespan and the like pass untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send, has_body=_has_body(scope))
        if not self._admits(scope["path"]):
            await exchange.answer(Unavailable("Too many requests are under way; try again shortly."))
            return
        self._under_way += 1
        try:
            await self._serve(scope, exchange)
        finally:
            self._under_way -= 1

    def _admits(self, path: str) -> bool:
        """Whether there is room for one more; the first refusal of a row is logged."""
        full = self._under_way >= self._most and path not in UNREFUSED
        if full and not self._full:
            log.warning("api.requests_refused", under_way=self._under_way, mend="run more `tocsin serve`")
        if full or self._under_way <= self._most // 2:
            self._full = full
        return not full

    async def _serve(self, scope: Scope, exchange: "_Exchange") -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log_failure(scope["method"], error)
            if exchange.started:
                raise
            await exchange.answer(error if isinstance(error, TocsinError) else Internal())


class _Exchange:
    """One request and its answer, as they pass."""

    def __init__(self, receive: Receive, send: Send, *, has_body: bool) -> None:
        self._receive, self._send = receive, send
        self._unread = has_body
        self.started = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._unread = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = list(message.get("headers", []))
            names = {name.lower() for name, _ in headers}
            headers += [(name, value) for name, value in ALWAYS if name not in names]
            if self._unread:
                headers.append((b"connection", b"close"))
            message["headers"] = headers
        await self._send(message)

    async def answer(self, error: TocsinError) -> None:
        problem = render(error)
        headers = [(name.encode(), value.encode()) for name, value in problem.headers.items()]
        headers.append((b"content-length", str(len(problem.body)).encode()))
        await self.send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": problem.body})


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0") != b"")
        for name, value in scope["headers"]
    )
