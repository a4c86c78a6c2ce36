"""Of what an issuer publishes, the keys that can verify a token are used, and the rest is passed over."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.jwks import ALGORITHMS, Key, Unusable, discovery_url, read_discovery, read_keys
from tests.issuers import base64url, private_key, public_jwk

ISSUER = "https://issuer.example"
RSA = public_jwk("RS256", private_key("RS256"), "a")
CURVE = public_jwk("ES256", private_key("ES256"), "b")


def read(*keys: Any) -> tuple[Key, ...]:
    return read_keys(json.dumps({"keys": keys}).encode())


def test_keys_are_kept_with_their_public_parts_only() -> None:
    (key,) = read({**RSA, "d": "c2VjcmV0", "x5c": ["MII"], "x5u": "https://elsewhere.example"})
    assert key == Key("a", "RS256", {name: RSA[name] for name in ("kty", "n", "e")})
    assert RSA["n"] not in repr(key)


@pytest.mark.parametrize(
    "odd",
    [
        7,
        None,
        [],
        {},
        {**RSA, "kid": None},
        {**RSA, "kid": 7},
        {**RSA, "kid": "k" * 201},
        {**RSA, "kty": "oct", "k": "c2VjcmV0"},
        {**RSA, "kty": "rsa"},
        {**RSA, "kty": ["RSA"]},
        {**RSA, "alg": 7},
        {**RSA, "use": "enc"},
        {**RSA, "key_ops": ["encrypt"]},
        {**RSA, "key_ops": "verify"},
        {**RSA, "n": 7},
        {**RSA, "n": ""},
        {**RSA, "n": "++++"},
        {**RSA, "n": base64url((1 << 2046).to_bytes(256, "big"))},
        {**RSA, "n": base64url(bytes(200) + b"\xff" * 128)},
        {**RSA, "n": base64url(b"\xff" * 1025)},
        {**RSA, "n": RSA["n"][:-1]},
        {**RSA, "e": base64url(b"\x01")},
        {**RSA, "e": base64url(b"\x01" + bytes(4))},
        {**RSA, "e": None},
        {**CURVE, "x": None},
        {**CURVE, "crv": None},
    ],
)
def test_what_can_verify_nothing_is_passed_over(odd: Any) -> None:
    assert [key.id for key in read(odd, CURVE)] == ["b"]


def test_each_algorithm_fits_its_own_kind_of_key_only() -> None:
    fitting = {
        (made_for, algorithm)
        for made_for in ALGORITHMS
        for algorithm in (*ALGORITHMS, "none", "HS256", "ES256K")
        for key in read({**public_jwk(made_for, private_key(made_for), "k"), "alg": None})
        if key.fits(algorithm)
    }
    assert fitting == {
        (one, other) for one in ALGORITHMS for other in ALGORITHMS if ALGORITHMS[one] == ALGORITHMS[other]
    }
    assert not any(key.fits("RS512") or key.fits("HS256") for key in read(RSA))


@pytest.mark.parametrize("raw", [b"", b"<html>", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[],"keys":[]}', b"\xff", b"7"])
def test_what_is_no_key_set_is_said_to_be_none(raw: bytes) -> None:
    with pytest.raises(Unusable, match="no JSON Web Key Set"):
        read_keys(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_called_unusable(raw: bytes) -> None:
    for reads in (read_keys, lambda it: read_discovery(it, ISSUER)):
        with pytest.raises(Unusable):
            reads(raw)


def test_the_discovery_document_is_that_of_the_configured_issuer() -> None:
    document = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
    assert read_discovery(json.dumps(document).encode(), ISSUER) == f"{ISSUER}/keys"
    for other in (f"{ISSUER}/", "https://elsewhere.example", None, 7):
        with pytest.raises(Unusable, match="another issuer"):
            read_discovery(json.dumps({**document, "issuer": other}).encode(), ISSUER)
    for uri in (None, 7, ["https://x.example"]):
        with pytest.raises(Unusable, match="no OpenID Connect discovery document"):
            read_discovery(json.dumps({**document, "jwks_uri": uri}).encode(), ISSUER)


def test_the_discovery_document_stands_below_the_issuer() -> None:
    well_known = ".well-known/openid-configuration"
    assert discovery_url(ISSUER) == discovery_url(f"{ISSUER}/") == f"{ISSUER}/{well_known}"
    assert discovery_url(f"{ISSUER}/tenant/v2.0") == f"{ISSUER}/tenant/v2.0/{well_known}"
