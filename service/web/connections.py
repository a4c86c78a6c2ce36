"""Connections from outside: bounded in number, size and time, and read in one way only.

uvicorn's protocol on h11, which reads a request's body to its end whatever `Upgrade` the head offers: what one reader
takes for a body, no other takes for a second request.
"""

import asyncio
import resource
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from service.domain.errors import TocsinError, Unavailable
from service.web.edge import ALWAYS
from service.web.problems import HeadTooLarge, Malformed, render

log = structlog.get_logger()

HEAD_BYTES = 32 * 1024
"""For the request line and all headers together; h11 needs some 0.5 ms for each KiB of them at worst."""

MAX_CHUNKS = 4096
"""Of one body. Chunks of a byte or two cost a thousand times what they carry."""

HEAD_SECONDS = 10.0
"""From the accept, or from the end of the answer before, to the end of the head."""

KEEP_ALIVE_SECONDS = 5
"""How long a connection may be idle between two requests."""

STALL_SECONDS = 30.0
"""How long an answer waits for a caller who does not read it."""

MOST_CONNECTIONS = 10_000

_SLICE = 16 * 1024
"""What is looked at in one piece, so that a head that is too long is not read through first."""


def most_connections() -> int:
    """How many connections may be open at once: half of what this process may open leaves room for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(1, soft // 2))


class Door(uvicorn.Config):
    """How the API is served; at most `most` connections are open at once."""

    def __init__(self, app: ASGIApp, *, most: int | None = None, grace_seconds: int = 5) -> None:
        """Serve `app`; a stopping server waits for `grace_seconds` for the answers that are under way."""
        super().__init__(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # starts and stops are told by our own lines; a bad request, to whoever sent it
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=grace_seconds,
        )
        self.most = most_connections() if most is None else most
        self._full = False

    def admits(self, in_use: int) -> bool:
        """Whether one more may come in when so many are in use, itself included; the first refusal is logged."""
        if in_use > self.most:
            if not self._full:
                log.warning("api.connections_refused", open=self.most, mend="raise `ulimit -n`, or keep callers out")
            self._full = True
        elif in_use <= self.most * 3 // 4:
            self._full = False
        return in_use <= self.most


class Connection(H11Protocol):
    """One connection, and the requests that come over it one after another."""

    conn: "_Strict"

    def __init__(
        self,
        config: Door,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Strict()
        self._door = config
        self._patience = _Timer(self.loop, self.timeout_keep_alive_handler)
        """Runs while a head is awaited."""
        self._stalled = _Timer(self.loop, self._abort)
        """Runs while an answer is not being read, and while the connection is closing."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Let it in, or turn it away while there are too many."""
        super().connection_made(transport)
        if self._door.admits(max(len(self.connections), len(self.tasks))):
            self._await_head()
        else:
            self._refuse(Unavailable("Too many connections are open; try again shortly."))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers with the connection."""
        self._patience.stop()
        self._stalled.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, until the request is refused."""
        for at in range(0, len(data), _SLICE):
            if self.transport.is_closing():
                return
            super().data_received(data[at : at + _SLICE])
        self._await_head()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the caller to take the last answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._stalled.start(STALL_SECONDS)
        else:
            self._await_head()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing came in time."""
        super().timeout_keep_alive_handler()
        self._stalled.start(STALL_SECONDS)

    def pause_writing(self) -> None:
        """Give a caller some time who does not read."""
        super().pause_writing()
        self._stalled.start(STALL_SECONDS)

    def resume_writing(self) -> None:
        """Go on with a caller who reads again."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stalled.stop()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words for every fault
        """Say what is wrong with the request, and close."""
        self._refuse(self.conn.refusal)

    def _should_upgrade(self) -> bool:
        """Never: an offer to upgrade may be declined without a word (RFC 9110 section 7.8)."""
        return False

    def _await_head(self) -> None:
        """Give whatever is still to come of a head its time; once the head is there, the time is the body's."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._patience.stop()
        else:
            self._patience.start(HEAD_SECONDS)

    def _abort(self) -> None:
        self.transport.abort()

    def _refuse(self, error: TocsinError) -> None:
        """Answer with the problem, unless an answer is under way already, and close."""
        # Before the first request there is no cycle, whatever uvicorn's types say.
        if self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            problem = render(error)
            headers = [*self.server_state.default_headers, *ALWAYS]
            headers += [(name.encode(), value.encode()) for name, value in problem.headers.items()]
            headers += [(b"content-length", str(len(problem.body)).encode()), (b"connection", b"close")]
            reason = HTTPStatus(problem.status).phrase.encode()
            answer = h11.Response(status_code=problem.status, headers=headers, reason=reason)
            body = b"" if self.conn.method == b"HEAD" else problem.body
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._stalled.start(STALL_SECONDS)


class _Strict(h11.Connection):
    """h11's reading of HTTP without what another reader may read differently; `refusal` says why it stopped."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self.refusal: TocsinError = Malformed()
        self.method = b""
        self._chunks = 0

    def next_event(self) -> Any:
        """The next event.

        Raises:
            h11.RemoteProtocolError: the request cannot be read, or will not be.

        """
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                self.refusal = HeadTooLarge()
            raise
        if isinstance(event, h11.Request):
            self.method, self._chunks = event.method, 0
            return self._checked(event)
        if isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            if self._chunks > MAX_CHUNKS:
                self._refuse(f"The body comes in more than {MAX_CHUNKS} chunks: send larger ones.")
        return event

    def _checked(self, request: h11.Request) -> h11.Request:
        """The request, its target without scheme and host where it is in absolute form (RFC 9112 section 3.2.2)."""
        names = {name for name, _ in request.headers}
        if request.http_version not in {b"1.0", b"1.1"}:
            self._refuse("Only HTTP/1.1 is spoken here, and HTTP/1.0.")
        if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
            # RFC 9112 section 6.1: readers disagree about where such a body ends.
            self._refuse("The body has both a Content-Length and a Transfer-Encoding, or the latter under HTTP/1.0.")
        if not request.target.lower().startswith((b"http://", b"https://")):
            return request
        path = b"/" + request.target.split(b"/", 3)[3] if request.target.count(b"/") > 2 else b"/"  # noqa: PLR2004
        return h11.Request(
            method=request.method, target=path, headers=request.headers, http_version=request.http_version
        )

    def _refuse(self, why: str) -> None:
        self.refusal = Malformed(why)
        raise h11.RemoteProtocolError(why)


class _Timer:
    """Calls once when its time is up; to start it while it runs changes nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        self._loop, self._call = loop, call
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        if self._handle is None:
            self._handle = self._loop.call_later(seconds, self._call)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
