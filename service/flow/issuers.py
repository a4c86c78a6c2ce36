"""The keys of the issuers whose tokens may tick: fetched through the guard, kept, and used while the issuer is down."""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

import structlog
from pyreqwest.exceptions import DetailedPyreqwestError, RequestTimeoutError
from pyreqwest.request import StreamRequest
from pyreqwest.response import Response

from service import __version__
from service.domain.errors import Unavailable
from service.domain.faults import fault
from service.domain.job import OidcConfig
from service.domain.jwks import Key, Unusable, discovery_url, read_discovery, read_keys
from service.domain.model import Outcome
from service.domain.tokens import TokenRefused
from service.flow.egress import Blocked, Egress, Route
from service.flow.flights import Flights
from service.flow.resolver import Unready, Unresolved

log = structlog.get_logger()

FETCH_SECONDS: Final = 5.0
"""For each of the two documents: from the look-up of the name to the answer's end."""
ANSWER_BYTES: Final = 256 * 1024
FRESH_SECONDS: Final = 3_600.0
"""How long keys are good when the issuer's Cache-Control does not say."""
SHORTEST_FRESH_SECONDS, LONGEST_FRESH_SECONDS = 300.0, 86_400.0
"""What the issuer says about it counts within these."""
AGAIN_SECONDS: Final = 30.0
"""An issuer is asked no sooner again, whatever tokens come."""
FIRST_AGAIN_SECONDS: Final = 2.0
"""The same while none of its keys was ever fetched: the caller is told to come again after as long."""
LONGEST_AWAY_SECONDS: Final = 7 * 86_400.0
"""Keys that could not be fetched again for so long are not believed any more."""

_HEADERS: Final = {"accept": "application/json", "user-agent": f"Tocsin/{__version__}"}
_MAX_AGE: Final = re.compile(r"max-age=([0-9]{1,9})")
_OK: Final = 200


class Away(Exception):
    """The issuer did not give its keys; the message is the end of a sentence and repeats nothing that it sent."""


class _Address(NamedTuple):
    """Where keys come from. Without `jwks_uri` the issuer's discovery document says it."""

    issuer: str
    jwks_uri: str | None


class _Document(NamedTuple):
    body: bytes
    fresh_seconds: float


@dataclass(slots=True)
class _Kept:
    """What is known of one issuer. Times are seconds of the monotonic clock; `fetched_at` that of the last success."""

    keys: tuple[Key, ...] = ()
    fetched_at: float | None = None
    fresh_until: float = 0.0
    asked_at: float | None = None
    """When the last answer came, or none."""
    away: bool = False
    """Whether the last fetch failed."""

    def has(self, key_id: str) -> bool:
        return any(key.id == key_id for key in self.keys)


class Issuers:
    """Gives keys, from memory as long as they are good there; `elapsed` is the clock that their age is told by."""

    def __init__(self, egress: Egress, *, elapsed: Callable[[], float] = time.monotonic) -> None:
        """Prepare; nothing is fetched before it is needed."""
        self._egress = egress
        self._elapsed = elapsed
        self._kept: dict[_Address, _Kept] = {}
        self._fetching: Flights[_Address, None] = Flights()

    async def key(self, wanted: OidcConfig, key_id: str, algorithm: str) -> Key:
        """The issuer's key with this id, fit for this algorithm.

        Stale keys and an unknown id lead to a fetch, one at a time an issuer and none within AGAIN_SECONDS of the last.

        Raises:
            TokenRefused: `unknown-key`: the issuer has no such key. `algorithm`: that key is not for this algorithm.
                `issuer-away`: it may have one, but cannot be asked.
            Unavailable: the issuer is away, and none of its keys was ever fetched.

        """
        address = _Address(wanted.issuer, wanted.jwks_uri)
        kept = self._kept.setdefault(address, _Kept())
        if not kept.has(key_id) or self._elapsed() >= kept.fresh_until:
            await self._refresh(address, kept)
        if kept.fetched_at is None:
            raise Unavailable("The keys of the token's issuer cannot be fetched; ask again shortly.")
        if self._elapsed() - kept.fetched_at > LONGEST_AWAY_SECONDS:
            raise TokenRefused("issuer-away")
        if not kept.has(key_id):
            raise TokenRefused("issuer-away" if kept.away else "unknown-key")
        for key in kept.keys:
            if key.id == key_id and key.fits(algorithm):
                return key
        raise TokenRefused("algorithm")

    async def ask(self, wanted: OidcConfig) -> int:
        """How many keys the issuer has now; nothing of it is kept.

        Raises:
            Away: it does not give any; why is the end of a sentence.

        """
        _, keys = await self._asked(_Address(wanted.issuer, wanted.jwks_uri))
        return len(keys)

    async def close(self) -> None:
        """Give up what is being fetched."""
        await self._fetching.close()

    async def _refresh(self, address: _Address, kept: _Kept) -> None:
        """Fetch the keys unless that was tried just now; who comes while they are being fetched waits for that."""
        pause = FIRST_AGAIN_SECONDS if kept.fetched_at is None else AGAIN_SECONDS
        if kept.asked_at is None or self._elapsed() - kept.asked_at >= pause:
            await self._fetching.join(address, lambda: self._fetch(address, kept))

    async def _fetch(self, address: _Address, kept: _Kept) -> None:
        try:
            document, keys = await self._asked(address)
        except Away as away:
            kept.away = True
            log.warning("issuer.away", issuer=address.issuer, detail=str(away), keys=len(kept.keys))
        else:
            kept.keys, kept.away, kept.fetched_at = keys, False, self._elapsed()
            kept.fresh_until = kept.fetched_at + document.fresh_seconds
            log.info("issuer.fetched", issuer=address.issuer, keys=len(keys), fresh_seconds=document.fresh_seconds)
        kept.asked_at = self._elapsed()

    async def _asked(self, address: _Address) -> tuple[_Document, tuple[Key, ...]]:
        try:
            document = await self._get(await self._keys_url(address))
            return document, read_keys(document.body)
        except Unusable as unusable:
            raise Away(str(unusable)) from None

    async def _keys_url(self, address: _Address) -> str:
        if address.jwks_uri is not None:
            return address.jwks_uri
        document = await self._get(discovery_url(address.issuer))
        url = read_discovery(document.body, address.issuer)
        if not url.startswith("https://") and address.issuer.startswith("https://"):
            raise Away("its discovery document gives an address of keys that is not https")
        return url

    async def _get(self, url: str) -> _Document:
        """The document at this URL.

        Raises:
            Away: there is none to be had.

        """
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                route = await self._egress.route(url, FETCH_SECONDS)
                return await self._exchange(url, route, _prepared(route))
        except TimeoutError:
            raise Away(f"no answer within {FETCH_SECONDS:g} s") from None
        except (Blocked, Unresolved, Unready) as refused:
            raise Away(str(refused)) from None

    async def _exchange(self, url: str, route: Route, prepared: StreamRequest) -> _Document:
        try:
            async with prepared as response:
                if response.status != _OK:
                    raise Away(f"answered {response.status}, which is not {_OK}; redirects are not followed")
                return _Document(await _body(response), _fresh_seconds(response))
        except DetailedPyreqwestError as error:
            causes = [cause["message"] for cause in error.details["causes"] or []]
            outcome, detail = fault(causes, timed_out=isinstance(error, RequestTimeoutError))
            if outcome is Outcome.UNREACHABLE:
                self._egress.unreached(url, route.address)
            raise Away(detail) from None


def _prepared(route: Route) -> StreamRequest:
    # The transport goes on by itself after a cancellation: its own timer ends it.
    return route.client.get(route.url).headers(_HEADERS).timeout(timedelta(seconds=FETCH_SECONDS)).build_streamed()


async def _body(response: Response) -> bytes:
    """The whole body, which is read no further than it may be long."""
    body = bytearray()
    while (piece := await response.body_reader.read_chunk()) is not None:
        body += memoryview(piece)
        if len(body) > ANSWER_BYTES:
            raise Away(f"the answer is longer than {ANSWER_BYTES} bytes")
    return bytes(body)


def _fresh_seconds(response: Response) -> float:
    """How long the answer is good, by its Cache-Control (RFC 9111, 5.2.2), within our own limits."""
    try:
        said = ",".join(response.get_header_all("cache-control")).lower()
    except ValueError:  # not ASCII, and so nothing that can be read
        return FRESH_SECONDS
    directives = [it.strip() for it in said.split(",")]
    if "no-store" in directives or "no-cache" in directives:
        return SHORTEST_FRESH_SECONDS
    ages = [float(age[1]) for it in directives if (age := _MAX_AGE.fullmatch(it))]
    return min(max(min(ages, default=FRESH_SECONDS), SHORTEST_FRESH_SECONDS), LONGEST_FRESH_SECONDS)
