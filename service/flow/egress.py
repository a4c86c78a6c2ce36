"""The only way out: turns a subscriber's URL into a client that can reach nothing but a vetted address."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from math import inf
from time import monotonic
from typing import Final, NamedTuple

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.http import Url

from service.domain import urls
from service.domain.targets import Network, refusal
from service.flow.flights import Flights
from service.flow.resolver import Resolve, Resolver, Unready, Unresolved

TTL_SECONDS: Final = 10.0
"""How long a vetted answer may be dialled before its name is looked up again."""
NEGATIVE_TTL_SECONDS: Final = 2.0
ORIGINS: Final = 2000
"""So many destinations keep their client (some 115 KB each); the one used longest ago gives way."""
IDLE_SECONDS: Final = 4
"""Shorter than the 5 s after which common servers drop an idle connection: a POST must not meet one half-closed."""
CONNECT_SECONDS: Final = (10.0, 5.0, 2.0, 1.0, 0.5, 0.2)


class Blocked(Exception):
    """The destination may not be called: its URL or an address behind it is refused."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that has passed `check_url`: `url` is what is dialled, `host` what is looked up unless it is `literal`."""

    url: Url
    origin: str
    host: str
    port: int
    literal: bool


class Route(NamedTuple):
    """A way to a destination. A request for `url` through `client` reaches `address` and no other."""

    client: Client
    url: Url
    address: str


@dataclass(slots=True)
class _Pin:
    """What one origin was last vetted to: its addresses, of which the first is dialled, or the fault with it."""

    fresh_until: float
    addresses: Sequence[str] = ()
    fault: Blocked | Unresolved | Unready | None = None
    clients: dict[float, Client] = field(default_factory=dict[float, Client])
    """By their connect timeout in seconds."""


class Egress:
    """Vets, pins and caches: one client an origin, whose only address was judged at most `ttl_seconds` ago.

    `allow` and `deny` are judged by `targets.refusal`. `extra_roots` is PEM that TLS trusts besides the system's.
    """

    def __init__(
        self,
        allow: Sequence[Network] = (),
        deny: Sequence[Network] = (),
        resolve: Resolve | None = None,
        *,
        ttl_seconds: float = TTL_SECONDS,
        origins: int = ORIGINS,
        extra_roots: bytes | None = None,
    ) -> None:
        """Prepare; nothing is looked up or built before it is needed."""
        self._allow, self._deny = tuple(allow), tuple(deny)
        self._resolve = resolve or Resolver()
        self._ttl_seconds, self._origins, self._extra_roots = ttl_seconds, origins, extra_roots
        self._pins: OrderedDict[str, _Pin] = OrderedDict()
        self._unpinned: dict[float, Client] = {}
        self._vetting: Flights[str, _Pin] = Flights()
        self._building: Flights[tuple[str, str, float], Client] = Flights()

    def ready(self, url: str, seconds: float) -> Route | None:
        """The route, where one is at hand that need not be vetted or built first."""
        try:
            target = _target(url)
        except ValueError:
            return None
        pin = self._pins.get(target.origin)
        if pin is None or pin.fresh_until <= monotonic():
            return None
        client = pin.clients.get(_connect_seconds(seconds))
        if client is None or pin.fault is not None:
            return None
        self._pins.move_to_end(target.origin)
        return Route(client, target.url, pin.addresses[0])

    async def route(self, url: str, seconds: float) -> Route:
        """A route for an attempt of so many seconds; connecting may take at most half of them.

        Raises:
            Blocked: the URL or one of its addresses is refused.
            Unresolved: its name has no address just now.
            Unready: this process is short of something.

        """
        try:
            target = _target(url)
        except ValueError as fault:
            raise Blocked(f"the url {fault}") from None
        pin = self._pins.get(target.origin)
        if pin is None or pin.fresh_until <= monotonic():
            pin = await self._vetting.join(target.origin, lambda: self._vetted(target))
        if pin.fault is not None:
            raise type(pin.fault)(*pin.fault.args)
        address, connect = pin.addresses[0], _connect_seconds(seconds)
        client = pin.clients.get(connect)
        if client is None:
            key = ("" if target.literal else target.origin, "" if target.literal else address, connect)
            client = await self._building.join(key, lambda: self._built(target, pin, address, connect))
        return Route(client, target.url, address)

    async def vet(self, url: str) -> None:
        """Judge a URL as it is registered. A name that cannot be looked up passes: it is judged again when dialled.

        Raises:
            Blocked: the URL or one of its addresses is refused.

        """
        try:
            await self._addresses(_target(url))
        except ValueError as fault:
            raise Blocked(str(fault)) from None
        except (Unresolved, Unready):
            return

    def unreached(self, url: str, address: str) -> None:
        """No connection came about to this address: the next attempt dials the next of the vetted ones."""
        pin = self._pins.get(_target(url).origin)
        if pin and len(pin.addresses) > 1 and pin.addresses[0] == address:
            pin.addresses = (*pin.addresses[1:], address)
            pin.clients = {}

    async def close(self) -> None:
        """Let go of every client; requests in flight go on to their end."""
        await self._vetting.close()
        await self._building.close()
        self._pins.clear()
        self._unpinned.clear()

    async def _vetted(self, target: Target) -> _Pin:
        """Look up and judge anew; the client stays where its address is still among the answers."""
        before = self._pins.get(target.origin)
        try:
            addresses = await self._addresses(target)
        except (Blocked, Unresolved, Unready) as fault:
            pin = _Pin(monotonic() + min(NEGATIVE_TTL_SECONDS, self._ttl_seconds), fault=fault)
        else:
            pin = _Pin(inf if target.literal else monotonic() + self._ttl_seconds, addresses)
            if target.literal:
                pin.clients = self._unpinned
            elif before and before.addresses and before.addresses[0] in addresses:
                first = before.addresses[0]
                pin.addresses = (first, *(address for address in addresses if address != first))
                pin.clients = before.clients
        self._pins[target.origin] = pin
        self._pins.move_to_end(target.origin)
        if len(self._pins) > self._origins:
            self._pins.popitem(last=False)
        return pin

    async def _addresses(self, target: Target) -> Sequence[str]:
        """Every address behind the target; one that is refused refuses them all."""
        if target.literal:
            if fault := refusal(target.host, self._allow, self._deny):
                raise Blocked(f"the url holds {fault}")
            return (target.host,)
        addresses = await self._resolve(target.host, target.port)
        if not addresses:
            message = "dns: the name has no address"
            raise Unresolved(message)
        for address in addresses:
            if fault := refusal(address, self._allow, self._deny):
                raise Blocked(f"the url's host leads to {fault}")
        return tuple(addresses)

    async def _built(self, target: Target, pin: _Pin, address: str, connect: float) -> Client:
        client = await asyncio.to_thread(_build, target, address, connect, self._extra_roots)
        if pin.addresses[0] == address:
            pin.clients[connect] = client
        return client


def check_url(url: str) -> None:
    """Whether a URL can be called at all, whatever its host leads to.

    Raises:
        ValueError: what is wrong and how to mend it, as the end of a sentence; the URL is not repeated.

    """
    _target(url)


@lru_cache(maxsize=4 * ORIGINS)
def _target(url: str) -> Target:
    if fault := urls.text_fault(url):
        raise ValueError(fault)
    try:
        parsed = Url(url)
    except ValueError:
        message = "must have a valid host and port"
        raise ValueError(message) from None
    host, port = parsed.host_str or "", parsed.port_or_known_default or 0
    if fault := urls.host_fault(host, urls.written_host(url)) or ("must not have the port 0" if not port else None):
        raise ValueError(fault)
    if literal := urls.literal(host):
        return Target(parsed, parsed.origin_ascii, literal, port, literal=True)
    # Without the dot at its end, a name is the same in the pin, in the Host header and in the certificate.
    name = host.removesuffix(".")
    dialled = parsed.with_host(name)
    return Target(dialled, dialled.origin_ascii, name, port, literal=False)


@lru_cache(maxsize=1024)
def _connect_seconds(seconds: float) -> float:
    """How long connecting may take, in steps, so that subscribers of one origin share its client."""
    return next((step for step in CONNECT_SECONDS if step * 2 <= seconds), CONNECT_SECONDS[-1] / 2)


def _build(target: Target, address: str, connect: float, extra_roots: bytes | None) -> Client:
    builder = (
        ClientBuilder()
        .follow_redirects(enable=False)
        .no_proxy()
        .referer(enable=False)
        .gzip(enable=False)
        .brotli(enable=False)
        .deflate(enable=False)
        .zstd(enable=False)
        .http1_only()
        .http1_lower_case_headers()
        .connect_timeout(timedelta(seconds=connect))
        .pool_idle_timeout(timedelta(seconds=IDLE_SECONDS))
    )
    if extra_roots is not None:
        builder = builder.add_root_certificate_pem(extra_roots)
    if not target.literal:
        builder = builder.resolve(target.host, address, target.port)
    try:
        return builder.build()
    except PyreqwestError:
        message = "this machine cannot open TLS connections: are its ca-certificates installed, its files not used up?"
        raise Unready(message) from None
