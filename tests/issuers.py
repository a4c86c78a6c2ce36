"""An issuer of identity tokens on a local socket, with discovery, keys that rotate, and a switch that takes it away.

    async with Issuer() as issuer:
        wanted = issuer.wants_google()        # the job's `oidc`, for tokens as Cloud Scheduler sends them
        token = issuer.google()               # such a token; `issuer.google(email="…")` changes a claim,
        issuer.rotate()                       # `issuer.google(exp=None)` leaves one out
        issuer.away = answer(503)             # from now on, whatever is asked

Its tokens hold what Google's and GitHub's hold; `mint` makes any other, `compact` the forged ones.
"""

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from service.domain.job import OidcConfig
from service.flow.tokens import TokenRefused, Tokens
from tests.receivers import Answer, Receiver, Request, answer

AUDIENCE = "https://tocsin.example/v1/jobs/shipments.expire/ticks"
EMAIL = "scheduler@project.iam.gserviceaccount.com"
REPOSITORY_ID = "74"
WORKFLOW_REF = "octo-org/octo-repo/.github/workflows/tick.yml@refs/heads/main"
DISCOVERY_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/keys"

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_CURVES: dict[str, type[ec.EllipticCurve]] = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


@dataclass
class Clock:
    """A clock that only a test turns."""

    at: float = 1_796_000_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.at

    def turn(self, seconds: float) -> None:
        """Go on by so much."""
        self.at += seconds


@cache
def private_key(algorithm: str, number: int = 1) -> Private:
    """A key for this algorithm; those of the same number are the same in all tests, for making one takes its time."""
    assert number
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm]())
    return rsa.generate_private_key(65537, 2048)


def base64url(raw: bytes) -> str:
    """As RFC 7515 writes bytes."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def compact(
    header: Mapping[str, Any] | bytes, claims: Mapping[str, Any] | bytes, sign: Callable[[bytes], bytes]
) -> str:
    """A token with exactly this header and these claims, whatever they are, and the signature that `sign` makes."""
    parts = [it if isinstance(it, bytes) else json.dumps(it, separators=(",", ":")).encode() for it in (header, claims)]
    signed = ".".join(base64url(part) for part in parts)
    return f"{signed}.{base64url(sign(signed.encode()))}"


def signer(algorithm: str, key: Private) -> Callable[[bytes], bytes]:
    """What signs bytes with this key."""
    return lambda message: get_default_algorithms()[algorithm].sign(message, key)


def public_jwk(algorithm: str, key: Private, key_id: str) -> dict[str, Any]:
    """The public half of a key, as it is published."""
    public = key.public_key()
    parts: dict[str, Any] = get_default_algorithms()[algorithm].to_jwk(public, as_dict=True)
    parts.pop("key_ops", None)
    return {**parts, "kid": key_id, "alg": algorithm, "use": "sig"}


async def refusal(verifier: Tokens, token: str, wanted: OidcConfig) -> str:
    """Why this token is refused."""
    with pytest.raises(TokenRefused) as refused:
        await verifier.verify(token, wanted)
    return refused.value.why


class Issuer:
    """The issuer; an asynchronous context manager.

    `pages` overrides what a path answers, `away` all of them. `tls` and `name` make it one with a name of its own.
    """

    def __init__(
        self,
        *,
        algorithm: str = "RS256",
        now: Callable[[], float] = time.time,
        path: str = "",
        tls: SSLContext | None = None,
        name: str | None = None,
    ) -> None:
        """Prepare; its keys are numbered from 1, and the newest signs."""
        self.algorithm = algorithm
        self.newest = 1
        self.published = [1]
        """The numbers of the keys that it publishes."""
        self.headers: dict[str, str] = {}
        """What goes with its keys, such as `cache-control`."""
        self.pages: dict[str, Answer] = {}
        self.away: Answer | None = None
        self.receiver = Receiver(then=self._answered, tls=tls)
        self._now, self._path, self._name = now, path, name

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        await self.receiver.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.receiver.__aexit__(kind, error, trace)

    @property
    def origin(self) -> str:
        """Where it listens."""
        return self.receiver.url.replace("127.0.0.1", self._name) if self._name else self.receiver.url

    @property
    def url(self) -> str:
        """Its name as an issuer."""
        return self.origin + self._path

    @property
    def asked(self) -> list[str]:
        """The paths that it was asked for, in order."""
        return [request.target for request in self.receiver.requests]

    @property
    def fetches(self) -> int:
        """How often its keys were asked for."""
        return self.asked.count(KEYS_PATH)

    def rotate(self, *, keep: bool = True) -> None:
        """Publish a new key and sign with it; with `keep` the ones before stay published."""
        self.newest += 1
        self.published = [*(self.published if keep else []), self.newest]

    def jwk(self, number: int) -> dict[str, Any]:
        """One of its keys, as it is published."""
        return public_jwk(self.algorithm, private_key(self.algorithm, number), f"key-{number}")

    def header(self, **changes: Any) -> dict[str, Any]:
        """The header of its tokens; a change to None leaves a member out."""
        return _changed({"alg": self.algorithm, "kid": f"key-{self.newest}", "typ": "JWT"}, changes)

    def mint(self, claims: Mapping[str, Any], **header: Any) -> str:
        """A token with these claims, properly signed; `header` changes members of its header."""
        key = private_key(self.algorithm, self.newest)
        return compact(self.header(**header), claims, signer(self.algorithm, key))

    def google_claims(self, **changes: Any) -> dict[str, Any]:
        """What a token says that Cloud Scheduler sends in the name of a service account."""
        now = int(self._now())
        claims = {
            "aud": AUDIENCE,
            "azp": "115700000000000000001",
            "email": EMAIL,
            "email_verified": True,
            "exp": now + 3600,
            "iat": now,
            "iss": self.url,
            "sub": "115700000000000000001",
        }
        return _changed(claims, changes)

    def google(self, **changes: Any) -> str:
        """A token as Cloud Scheduler sends it."""
        return self.mint(self.google_claims(**changes))

    def github_claims(self, **changes: Any) -> dict[str, Any]:
        """What a token says that a workflow of GitHub Actions gets, scheduled on its main branch."""
        now = int(self._now())
        claims = {
            "jti": "b1b2c3d4-0000-4000-8000-000000000001",
            "sub": "repo:octo-org/octo-repo:ref:refs/heads/main",
            "aud": AUDIENCE,
            "ref": "refs/heads/main",
            "sha": "5f3a9c0d5f3a9c0d5f3a9c0d5f3a9c0d5f3a9c0d",
            "repository": "octo-org/octo-repo",
            "repository_owner": "octo-org",
            "repository_owner_id": "65",
            "repository_id": REPOSITORY_ID,
            "repository_visibility": "private",
            "run_id": "9876543210",
            "run_number": "10",
            "run_attempt": "1",
            "runner_environment": "github-hosted",
            "actor": "octocat",
            "actor_id": "12",
            "workflow": "tick",
            "workflow_ref": WORKFLOW_REF,
            "job_workflow_ref": WORKFLOW_REF,
            "event_name": "schedule",
            "ref_protected": "true",
            "ref_type": "branch",
            "iss": self.url,
            "nbf": now - 300,
            "exp": now + 300,
            "iat": now,
        }
        return _changed(claims, changes)

    def github(self, **changes: Any) -> str:
        """A token as a workflow of GitHub Actions sends it."""
        return self.mint(self.github_claims(**changes))

    def wants_google(self, **changes: Any) -> OidcConfig:
        """What a job asks for that Cloud Scheduler ticks."""
        values = {"issuer": self.url, "audience": (AUDIENCE,), "claims": {"email": EMAIL}, "source": "shipments.expire"}
        return OidcConfig(**({**values, "algorithms": (self.algorithm,)} | changes))

    def wants_github(self, **changes: Any) -> OidcConfig:
        """What a job asks for that a workflow ticks."""
        claims = {"repository_id": REPOSITORY_ID, "workflow_ref": WORKFLOW_REF}
        return self.wants_google(**({"claims": claims} | changes))

    def _answered(self, request: Request) -> Answer:
        if self.away is not None:
            return self.away
        if request.target in self.pages:
            return self.pages[request.target]
        if request.target == self._path.removesuffix("/") + DISCOVERY_PATH:
            return _json(
                {"issuer": self.url, "jwks_uri": self.origin + KEYS_PATH, "response_types_supported": ["id_token"]}
            )
        if request.target == KEYS_PATH:
            return _json({"keys": [self.jwk(number) for number in self.published]}, self.headers)
        return answer(404)


def _json(value: Any, headers: Mapping[str, str] | None = None) -> Answer:
    return answer(headers={"content-type": "application/json", **(headers or {})}, body=json.dumps(value).encode())


def _changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**values, **changes}.items() if value is not None}
