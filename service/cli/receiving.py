"""A real HTTP receiver that verifies, deduplicates and answers by script: `tocsin receiver` and the demo run it.

It is a sample of what a receiver has to do, and small on purpose: it keeps its keys in memory, the newest 100,000.
"""

import asyncio
import hmac
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

import h11

from service.cli.answers import Kind, Script, Step
from service.domain import signing

_MAX_BODY_BYTES = 1_048_576
_MAX_HEADER_BYTES = 65_536
_MAX_KEYS = 100_000
_ALWAYS_200 = Script((Step(Kind.STATUS, HTTPStatus.OK),))
_TOLERANCE_SECONDS = 300
"""How far `webhook-timestamp` may be from this clock; Standard Webhooks advises five minutes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the receiver made of one request."""

    key: str
    """The webhook-id, or an empty string where there was none."""
    request: int
    """How often this key has come, this time included."""
    fault: str | None
    """What is wrong with the signature; None where it is right."""
    checked: bool
    """False when the receiver was given no secret to check with."""
    duplicate: bool
    """The key was applied before: it is acknowledged and not applied again."""
    answer: Step


@dataclass(slots=True)
class _Key:
    script: Script
    requests: int = 0
    applied: bool = False


class Receiver:
    """One listening port; a signature by any of `secrets` is right, and without secrets none is looked at.

    Of the keys that come, one in `every` goes through the script, the first among them; the others are answered 200.
    """

    def __init__(
        self,
        script: Script,
        *,
        every: int = 1,
        secrets: Sequence[bytes] = (),
        report: Callable[[Verdict], None] | None = None,
    ) -> None:
        self.script = script
        self._every = every
        self._keys_seen = 0
        self.secrets = tuple(secrets)
        self.port = 0
        self._report = report
        self._keys: OrderedDict[str, _Key] = OrderedDict()
        self._server: asyncio.Server | None = None
        self._socket: socket.socket | None = None
        self._connections: set[asyncio.Transport] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one. A script of `refuse` keeps the port and accepts nothing on it.

        Raises:
            OSError: the address is taken or not this machine's.

        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self.port = self._socket.getsockname()[1]
        if not self.script.refuses:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: _Connection(self), sock=self._socket, backlog=1024)

    async def close(self) -> None:
        """Stop listening and drop every connection, also the ones that hang on purpose."""
        if self._server is not None:
            self._server.close()
        for transport in list(self._connections):
            transport.abort()
        if self._socket is not None:
            self._socket.close()

    def judge(self, headers: dict[str, str], body: bytes) -> Verdict:
        """Decide on one request: verify first, then look the key up, then answer by script."""
        key = headers.get("webhook-id", "")
        if fault := self._fault(key, headers, body):
            refusal = Step(Kind.STATUS, HTTPStatus.UNAUTHORIZED if key else HTTPStatus.BAD_REQUEST)
            verdict = Verdict(key, 0, fault, checked=bool(self.secrets), duplicate=False, answer=refusal)
        else:
            verdict = self._apply(key)
        if self._report is not None:
            self._report(verdict)
        return verdict

    def _fault(self, key: str, headers: dict[str, str], body: bytes) -> str | None:
        if not key:
            return "webhook-id is missing"
        return signature_fault(headers, body, self.secrets) if self.secrets else None

    def _apply(self, key: str) -> Verdict:
        known = self._keys.get(key) or self._new(key)
        known.requests += 1
        answer = known.script.answer(known.requests)
        duplicate = known.applied
        known.applied = duplicate or answer.applies
        return Verdict(key, known.requests, None, checked=bool(self.secrets), duplicate=duplicate, answer=answer)

    def _new(self, key: str) -> _Key:
        self._keys[key] = known = _Key(self.script if self._keys_seen % self._every == 0 else _ALWAYS_200)
        self._keys_seen += 1
        if len(self._keys) > _MAX_KEYS:
            self._keys.popitem(last=False)
        return known


def signature_fault(headers: dict[str, str], body: bytes, secrets: Sequence[bytes]) -> str | None:
    """What is wrong with a Standard Webhooks signature, or None where one of the secrets made it just now."""
    sent = headers.get("webhook-timestamp", "")
    if not (sent.isascii() and sent.isdigit() and len(sent) <= 11):  # noqa: PLR2004
        return "webhook-timestamp is missing or no number"
    if abs(time.time() - int(sent)) > _TOLERANCE_SECONDS:
        return f"webhook-timestamp is more than {_TOLERANCE_SECONDS} seconds away from this clock"
    offered = headers.get("webhook-signature", "").encode("utf-8", "replace").split()
    made = signing.sign(secrets, headers.get("webhook-id", ""), int(sent), body).encode().split()
    if any(hmac.compare_digest(one, other) for one in offered for other in made):
        return None
    return "webhook-signature was not made with this secret" if offered else "webhook-signature is missing"


class _Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._http = h11.Connection(h11.SERVER, _MAX_HEADER_BYTES)
        self._method = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's by behaviour and not by class.
        self._transport = cast("asyncio.Transport", transport)
        self._receiver._connections.add(self._transport)  # noqa: SLF001

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._transport is not None:
            self._receiver._connections.discard(self._transport)  # noqa: SLF001

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._http.receive_data(data)
        try:
            self._read(self._transport)
        except h11.RemoteProtocolError as error:
            self._write(self._transport, Step(Kind.STATUS, error.error_status_hint), "not HTTP", last=True)

    def _read(self, transport: asyncio.Transport) -> None:
        """Go through what has arrived; a request that is hung on holds up those behind it."""
        while not transport.is_closing():
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._begin(transport, event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > _MAX_BODY_BYTES:
                    too_large = Step(Kind.STATUS, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                    self._write(transport, too_large, "too large", last=True)
            elif isinstance(event, h11.EndOfMessage):
                self._answer(transport)
            elif event is h11.PAUSED:
                transport.pause_reading()
                return
            else:
                return

    def _begin(self, transport: asyncio.Transport, request: h11.Request) -> None:
        self._method = request.method
        self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        self._body.clear()
        if self._http.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[], reason="Continue")
            transport.write(self._http.send(go_on))

    def _answer(self, transport: asyncio.Transport) -> None:
        verdict = self._receiver.judge(self._headers, bytes(self._body))
        if verdict.answer.kind is Kind.DISCONNECT:
            transport.close()
        elif verdict.answer.kind is Kind.STATUS:
            self._write(transport, verdict.answer, _words(verdict), last=False)

    def _write(self, transport: asyncio.Transport, step: Step, body: str, *, last: bool) -> None:
        """Send an answer and make ready for the next request, or close where there can be none."""
        bare = self._method == b"HEAD" or step.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
        content = b"" if bare else body.encode()
        headers = [] if bare else [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(content)))]
        if step.retry_after is not None:
            headers.append(("retry-after", str(step.retry_after)))
        if last:
            headers.append(("connection", "close"))
        answer = h11.Response(status_code=step.status, headers=headers, reason=_phrase(step.status))
        for event in (answer, h11.Data(data=content), h11.EndOfMessage()):
            transport.write(self._http.send(event))
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            transport.close()


def _words(verdict: Verdict) -> str:
    """The body of the answer, for the eyes of whoever reads the attempt."""
    if verdict.fault is not None:
        return verdict.fault
    if not verdict.answer.applies:
        return "not applied"
    return "duplicate: acknowledged, not applied again" if verdict.duplicate else "applied"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Scripted"
