"""The keys that an issuer of tokens publishes, as far as they can verify one (RFC 7517, RFC 7518, RFC 8037)."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from service.domain import jsontext
from service.domain.errors import Invalid, NotJson
from service.domain.jsontext import Json
from service.domain.tokens import KEY_ID_BYTES

ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The type and curve of key that each algorithm needs. All are asymmetric: what verifies must not be able to sign."""

_PARTS: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""The public parts of each type of key; nothing else of a key is kept."""
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")
_MODULUS_BITS: Final = range(2048, 8192 + 1)
"""At least what RFC 7518, 3.3 asks for, and at most what is still quick to verify with."""
_EXPONENT_BITS: Final = range(2, 32 + 1)
"""In use is 65,537; with 1, anything would be a signature."""

NO_KEYS: Final = "what it answers is no JSON Web Key Set"
NO_DISCOVERY: Final = "what it answers is no OpenID Connect discovery document"


class Unusable(Exception):
    """An issuer's answer cannot be used; the message is the end of a sentence and repeats nothing of it."""


@dataclass(frozen=True, slots=True)
class Key:
    """One public key. `algorithm` is the only one it is for, where its issuer says so."""

    id: str
    algorithm: str | None
    parts: Mapping[str, str] = field(repr=False)
    """Its members `kty` and what belongs to that."""

    def fits(self, algorithm: str) -> bool:
        """Whether a signature of this algorithm can be verified with it."""
        kind, curve = ALGORITHMS.get(algorithm, (None, None))
        return self.parts["kty"] == kind and self.parts.get("crv") == curve and self.algorithm in {None, algorithm}


def read_keys(raw: bytes) -> tuple[Key, ...]:
    """The usable keys of a JSON Web Key Set; whatever else is in it is passed over (RFC 7517, 5).

    Raises:
        Unusable: it is none.

    """
    listed = _members(raw, NO_KEYS).get("keys")
    if not isinstance(listed, list):
        raise Unusable(NO_KEYS)
    return tuple(key for it in listed if isinstance(it, dict) and (key := _key(it)))


def read_discovery(raw: bytes, issuer: str) -> str:
    """Where the keys are, as the issuer's discovery document says (OpenID Connect Discovery 1.0, 4.3).

    Raises:
        Unusable: it is none, or that of somebody else.

    """
    members = _members(raw, NO_DISCOVERY)
    if members.get("issuer") != issuer:
        raise Unusable("its discovery document names another issuer than the configured one")
    uri = members.get("jwks_uri")
    if not isinstance(uri, str):
        raise Unusable(NO_DISCOVERY)
    return uri


def discovery_url(issuer: str) -> str:
    """Where an issuer's discovery document stands (OpenID Connect Discovery 1.0, 4.1)."""
    return f"{issuer.removesuffix('/')}/.well-known/openid-configuration"


def _members(raw: bytes, fault: str) -> Mapping[str, Json]:
    try:
        value = jsontext.parse(raw)
    except (NotJson, Invalid):
        raise Unusable(fault) from None
    if not isinstance(value, dict):
        raise Unusable(fault)
    return value


def _key(listed: Mapping[str, Json]) -> Key | None:
    key_id, kind, algorithm = listed.get("kid"), listed.get("kty"), listed.get("alg")
    if not isinstance(key_id, str) or jsontext.text_fault(key_id, max_bytes=KEY_ID_BYTES):
        return None
    if not isinstance(kind, str) or kind not in _PARTS or not _is_for_verifying(listed):
        return None
    if algorithm is not None and not isinstance(algorithm, str):
        return None
    parts = _parts(listed, _PARTS[kind])
    return Key(key_id, algorithm, {"kty": kind, **parts}) if parts and _is_bounded(parts) else None


def _is_for_verifying(listed: Mapping[str, Json]) -> bool:
    uses = listed.get("key_ops", ["verify"])
    return listed.get("use", "sig") == "sig" and isinstance(uses, list) and "verify" in uses


def _parts(listed: Mapping[str, Json], names: Iterable[str]) -> dict[str, str] | None:
    """The named members, known to be texts of the right alphabet."""
    found: dict[str, str] = {}
    for name in names:
        value = listed.get(name)
        if not isinstance(value, str) or not _BASE64URL.fullmatch(value):
            return None
        found[name] = value
    return found


def _is_bounded(parts: Mapping[str, str]) -> bool:
    return "n" not in parts or (_bits(parts["n"]) in _MODULUS_BITS and _bits(parts["e"]) in _EXPONENT_BITS)


def _bits(number: str) -> int:
    """How long a number in base64url is (RFC 7518, 2: Base64urlUInt); 0 where it is none."""
    try:
        return int.from_bytes(urlsafe_b64decode(number + "=" * (-len(number) % 4)), "big").bit_length()
    except ValueError:
        return 0
