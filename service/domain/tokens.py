"""Reads identity tokens, and judges everything about one but its signature.

A token is a JWS in its compact form (RFC 7515) whose payload are claims (RFC 7519). What in it would name a key or
its place (`jku`, `jwk`, `x5c`, `x5u`) is not looked at: keys come from the configured issuer and from nowhere else.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, TypeGuard

from service.domain import jsontext
from service.domain.errors import Invalid, NotJson
from service.domain.job import OidcConfig
from service.domain.jsontext import Json

TOKEN_BYTES: Final = 8 * 1024
KEY_ID_BYTES: Final = 200
LEEWAY_SECONDS: Final = 30.0
"""How far the issuer's clock and ours may be apart."""
_LATEST: Final = 253_402_300_800
"""The end of the year 9999, in seconds since 1970; no time in a token is later."""
_COMPACT: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")

Why: TypeAlias = Literal[
    "no-token",
    "too-large",
    "malformed",
    "algorithm",
    "issuer",
    "audience",
    "expired",
    "not-yet-valid",
    "claim",
    "unknown-key",
    "issuer-away",
    "signature",
]


class TokenRefused(Exception):
    """This token ticks nothing; `why` is for the log alone and holds nothing of the token."""

    def __init__(self, why: Why, claim: str | None = None) -> None:
        """Say why in one of the fixed words; of the configured claims, which one is not there or another."""
        super().__init__(why)
        self.why = why
        self.claim = claim


class Token(NamedTuple):
    """What a token says, of which nothing is proved yet."""

    algorithm: str
    key_id: str | None
    claims: Mapping[str, Json]


def read(token: str) -> Token:
    """Take a token apart; its signature is not looked at.

    Raises:
        TokenRefused: it is `too-large`, or `malformed`: no token, or one with an extension that must be understood
            (`crit`; RFC 7515, 4.1.11) and is not.

    """
    if len(token) > TOKEN_BYTES:
        raise TokenRefused("too-large")
    parts = _COMPACT.fullmatch(token)
    if parts is None:
        raise TokenRefused("malformed")
    header, claims, _ = _object(parts[1]), _object(parts[2]), _bytes(parts[3])
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or "crit" in header or not _may_be_key_id(key_id):
        raise TokenRefused("malformed")
    return Token(algorithm, key_id, claims)


def judge(token: Token, wanted: OidcConfig, now: float) -> str:
    """Hold what a token says against the configuration, at `now` in seconds since 1970; gives the id of its key.

    That comes before the signature, so that nobody who lacks even the right words costs us a request to the issuer.

    Raises:
        TokenRefused: with the first fault there is.

    """
    if token.algorithm not in wanted.algorithms:
        raise TokenRefused("algorithm")
    if token.key_id is None:
        raise TokenRefused("unknown-key")
    if token.claims.get("iss") != wanted.issuer:
        raise TokenRefused("issuer")
    if not _audiences(token.claims.get("aud")) & {*wanted.audience}:
        raise TokenRefused("audience")
    _judge_times(token.claims, now)
    if fault := _claim_fault(token.claims, wanted.claims):
        raise TokenRefused("claim", fault)
    return token.key_id


def _judge_times(claims: Mapping[str, Json], now: float) -> None:
    expires, issued = _seconds(claims, "exp"), _seconds(claims, "iat")
    begins = _seconds(claims, "nbf") if "nbf" in claims else issued
    if expires <= issued:
        raise TokenRefused("malformed")
    if now >= expires + LEEWAY_SECONDS:
        raise TokenRefused("expired")
    if max(issued, begins) > now + LEEWAY_SECONDS:
        raise TokenRefused("not-yet-valid")


def _claim_fault(claims: Mapping[str, Json], wanted: Mapping[str, str | int | bool]) -> str | None:
    """The first of the wanted claims that is not there, of the same type; to want nothing would let everybody in.

    An address of mail counts only where the issuer says that it is its owner's (OpenID Connect Core 1.0, 5.7).
    """
    if not wanted:
        return "none is configured"
    if "email" in wanted and claims.get("email_verified") is not True:
        return "email_verified"
    return next(
        (name for name, value in wanted.items() if type(claims.get(name)) is not type(value) or claims[name] != value),
        None,
    )


def _audiences(value: Json) -> set[str]:
    """Whom a token is for: one name or a list of them (RFC 7519, 4.1.3); a list with anything else in it is nobody."""
    if isinstance(value, str):
        return {value}
    if not isinstance(value, list):
        return set()
    names = {it for it in value if isinstance(it, str)}
    return names if all(isinstance(it, str) for it in value) else set()


def _seconds(claims: Mapping[str, Json], name: str) -> float:
    """A time of a token, in seconds since 1970 (RFC 7519, 2: it may have fractions)."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
        raise TokenRefused("malformed")
    return value


def _may_be_key_id(value: Json) -> TypeGuard[str | None]:
    return value is None or (isinstance(value, str) and jsontext.text_fault(value, max_bytes=KEY_ID_BYTES) is None)


def _object(part: str) -> dict[str, Json]:
    """The JSON object in a part."""
    try:
        value = jsontext.parse(_bytes(part))
    except (NotJson, Invalid):
        raise TokenRefused("malformed") from None
    if not isinstance(value, dict):
        raise TokenRefused("malformed")
    return value


def _bytes(part: str) -> bytes:
    """What a part stands for; of the spellings in base64url that would mean the same, only the right one passes."""
    try:
        raw = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise TokenRefused("malformed") from None
    if urlsafe_b64encode(raw).rstrip(b"=").decode() != part:
        raise TokenRefused("malformed")
    return raw
