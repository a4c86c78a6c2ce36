"""The demo's subscribers: who they are, how their receivers behave, and what they were registered with."""

import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from service.cli import answers
from service.cli.api import Api, ApiRefused
from service.cli.receiving import Receiver, Verdict
from service.domain.signing import decode_secret, new_secret


@dataclass(frozen=True, slots=True)
class Kind:
    """Subscribers that behave alike: how many, the script of their receivers, and how they are registered.

    One in `every` shipments goes through the script, the others are answered 200.
    """

    slug: str
    words: str
    count: int
    script: str
    every: int = 1
    policy: Mapping[str, Any] = field(default_factory=dict[str, Any])


_STRANGERS = 500
_PATIENCE = {"deadlineSeconds": 12}
"""Of those that will never answer: behind their open circuit most deliveries wait for this, untried."""

CAST = (
    Kind("guild", "answers 200", 14, "200"),
    Kind("market", "throttles 1 in 25: 429 with Retry-After 1, then 200", 3, "429:1,200", every=25),
    Kind(
        "carrier", "fails 1 in 10 twice with 500, then 200", 3, "500,500,200", every=10, policy={"backoffCapSeconds": 2}
    ),
    Kind(
        "lossy",
        "applies, but hangs up on 1 in 10 before it answers",
        1,
        "disconnect,200",
        every=10,
        policy={"backoffCapSeconds": 2},
    ),
    Kind("silent", "takes the request and never answers", 1, "timeout", policy={"timeoutSeconds": 1, **_PATIENCE}),
    Kind(
        "fragile",
        "never answers, and cannot deduplicate (idempotent: false)",
        1,
        "timeout",
        policy={"timeoutSeconds": 1, "idempotent": False, **_PATIENCE},
    ),
    Kind("picky", "says no: 422", 1, "422"),
    Kind("gone", "nobody listens on its port", 1, "refuse", policy=_PATIENCE),
)
"""Twenty-five. Patience is short, so that the demo settles while somebody watches; by default it lasts for days."""


@dataclass(slots=True)
class Seen:
    """What all receivers together have seen."""

    requests: int = 0
    duplicates: int = 0
    faults: int = 0

    def note(self, verdict: Verdict) -> None:
        """Count one request."""
        self.requests += 1
        self.duplicates += verdict.duplicate
        self.faults += verdict.fault is not None


@dataclass(frozen=True, slots=True)
class Member:
    """One subscriber and its receiver."""

    slug: str
    kind: Kind
    receiver: Receiver
    secret: str = field(repr=False)


def kind_of(slug: str) -> Kind:
    """The kind that a subscriber of the demo belongs to."""
    prefix = slug.rsplit("-", 1)[0]
    return next(kind for kind in CAST if kind.slug == prefix)


@asynccontextmanager
async def receivers(root: bytes, seen: Seen) -> AsyncIterator[list[Member]]:
    """Every receiver of the cast, each on a port of its own of this machine.

    Their secrets come from `root`, the same in every demo: what an interrupted one left over still verifies.
    """
    members = [
        _member(root, kind, f"{kind.slug}-{number}", seen) for kind in CAST for number in range(1, kind.count + 1)
    ]
    try:
        for member in members:
            await member.receiver.start()
        yield members
    finally:
        for member in members:
            await member.receiver.close()


def _member(root: bytes, kind: Kind, slug: str, seen: Seen) -> Member:
    secret = new_secret(hmac.digest(root, slug.encode(), "sha256"))
    receiver = Receiver(answers.parse(kind.script), every=kind.every, secrets=[decode_secret(secret)], report=seen.note)
    return Member(slug, kind, receiver, secret)


async def register(api: Api, members: list[Member]) -> None:
    """Register each subscriber over HTTP, or tell where it is now; those of another release's demo leave."""
    ours = {member.slug for member in members}
    for stored in await api.items("/v1/subscribers", _STRANGERS, {}):
        if stored["id"] not in ours:
            await api.call("DELETE", f"/v1/subscribers/{stored['id']}")
    for member in members:
        wanted = {
            "url": f"http://127.0.0.1:{member.receiver.port}/hooks/{member.slug}",
            "eventTypes": ["shipment.*"],
            "secret": member.secret,
            "timeoutSeconds": 5,
            **member.kind.policy,
        }
        await _put(api, f"/v1/subscribers/{member.slug}", wanted)
        if "deadlineSeconds" in member.kind.policy:  # its circuit may be open from the last demo; this closes it
            for verb in ("pause", "resume"):
                await api.call("POST", f"/v1/subscribers/{member.slug}/{verb}", body={"reason": "a new demo begins"})


async def _put(api: Api, path: str, wanted: Mapping[str, Any]) -> None:
    """Register; one whose secret somebody rotated is made anew, because its receiver knows the demo's secret alone."""
    try:
        await api.call("PUT", path, body=wanted)
    except ApiRefused as refusal:
        if "/secret" not in dict(refusal.faults):
            raise
        await api.call("DELETE", path)
        await api.call("PUT", path, body=wanted)
