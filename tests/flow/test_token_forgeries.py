"""Whoever has no key of the issuer gets nothing past us, however the token is dressed up."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.domain import tokens
from service.flow.tokens import TokenRefused, Tokens
from tests.issuers import Clock, Issuer, base64url, compact, private_key, public_jwk, refusal, signer
from tests.receivers import Receiver, answer


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "HS256", "RS512", "PS256", "ES256", "rs256", ""])
async def test_no_algorithm_counts_but_the_configured_one(algorithm: str, issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_google()
    await verifier.verify(issuer.google(), wanted)  # so that the keys are known
    unsigned = compact(issuer.header(alg=algorithm), issuer.google_claims(), lambda _: b"")
    assert await refusal(verifier, unsigned, wanted) == "algorithm"
    assert await refusal(verifier, issuer.mint(issuer.google_claims(), alg=algorithm), wanted) == "algorithm"


@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS512", "ES256K"])
async def test_an_algorithm_that_is_none_of_ours_fits_no_key_even_if_it_were_configured(
    algorithm: str, issuer: Issuer, verifier: Tokens
) -> None:
    wanted = issuer.wants_google(algorithms=("RS256", algorithm))
    forged = compact(issuer.header(alg=algorithm), issuer.google_claims(), lambda _: b"")
    assert await refusal(verifier, forged, wanted) == "algorithm"


def _public_key_as_text() -> Iterator[bytes]:
    public = private_key("RS256").public_key()
    for encoding, form in (
        (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        (Encoding.PEM, PublicFormat.PKCS1),
        (Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    ):
        text = public.public_bytes(encoding, form)
        yield text
        yield text.strip()
    yield json.dumps(public_jwk("RS256", private_key("RS256"), "key-1")).encode()


@pytest.mark.parametrize("header", [{"alg": "HS256"}, {}], ids=["said", "hidden"])
@pytest.mark.parametrize("text", list(_public_key_as_text()), ids=lambda text: f"{text[:12]!r}")
async def test_the_public_key_is_no_hmac_secret(
    text: bytes, header: dict[str, str], issuer: Issuer, verifier: Tokens
) -> None:
    forged = compact(
        issuer.header(**header),
        issuer.google_claims(),
        lambda message: hmac.digest(text, message, hashlib.sha256),
    )
    assert await refusal(verifier, forged, issuer.wants_google()) == ("algorithm" if header else "signature")


async def test_a_key_is_used_for_its_own_algorithm_only(issuer: Issuer, verifier: Tokens, clock: Clock) -> None:
    other = public_jwk("ES256", private_key("ES256"), "curve")
    mixed = {"keys": [issuer.jwk(1), other]}
    issuer.pages["/keys"] = answer(body=json.dumps(mixed).encode())
    wanted = issuer.wants_google(algorithms=("RS256", "ES256", "PS256"))
    claims = issuer.google_claims()
    assert await verifier.verify(compact({"alg": "ES256", "kid": "curve"}, claims, _with("ES256")), wanted)
    assert (
        await refusal(verifier, compact({"alg": "RS256", "kid": "curve"}, claims, _with("RS256")), wanted)
        == "algorithm"
    )
    assert (
        await refusal(verifier, compact({"alg": "ES256", "kid": "key-1"}, claims, _with("ES256")), wanted)
        == "algorithm"
    )
    # key-1 is an RSA key, but its issuer says that it is for RS256.
    assert (
        await refusal(verifier, compact({"alg": "PS256", "kid": "key-1"}, claims, _with("PS256")), wanted)
        == "algorithm"
    )
    assert issuer.fetches == 1
    clock.turn(60)
    assert (
        await refusal(verifier, compact({"alg": "RS256", "kid": "curve"}, claims, _with("RS256")), wanted)
        == "algorithm"
    )
    assert issuer.fetches == 1, "a known key of another type is no reason to ask again"


def _with(algorithm: str) -> Callable[[bytes], bytes]:
    return signer(algorithm, private_key(algorithm))


@pytest.mark.parametrize("place", ["jku", "x5u", "jwk", "x5c"])
async def test_a_key_that_the_token_brings_along_is_not_looked_at(place: str, issuer: Issuer, verifier: Tokens) -> None:
    stranger = private_key("RS256", 66)
    brought = public_jwk("RS256", stranger, "key-1")
    async with Receiver(then=answer(body=json.dumps({"keys": [brought]}).encode())) as theirs:
        value = {"jku": theirs.url, "x5u": theirs.url, "jwk": brought, "x5c": [base64url(b"certificate")]}[place]
        for key_id in ("key-1", "theirs"):
            header = issuer.header(kid=key_id, **{place: value})
            forged = compact(header, issuer.google_claims(), signer("RS256", stranger))
            expected = "signature" if key_id == "key-1" else "unknown-key"
            assert await refusal(verifier, forged, issuer.wants_google()) == expected
        assert theirs.requests == []
    assert await verifier.verify(issuer.mint(issuer.google_claims(), **{place: value}), issuer.wants_google())


@pytest.mark.parametrize(
    ("expected", "header"),
    [
        ("unknown-key", {"kid": None}),
        ("unknown-key", {"kid": "key-2"}),
        ("unknown-key", {"kid": "../../../../dev/null"}),
        ("unknown-key", {"kid": "key-1' OR '1'='1"}),
        ("malformed", {"kid": ""}),
        ("malformed", {"kid": 1}),
        ("malformed", {"kid": ["key-1"]}),
        ("malformed", {"kid": "k" * 201}),
        ("malformed", {"kid": "key-1\n"}),
        ("malformed", {"kid": "key-1\x00"}),
        ("malformed", {"alg": None}),
        ("malformed", {"alg": ["RS256"]}),
        ("malformed", {"alg": {"RS256": 1}}),
        ("malformed", {"crit": ["exp"]}),
        ("malformed", {"crit": ["b64"], "b64": False}),
        ("malformed", {"crit": []}),
    ],
    ids=repr,
)
async def test_a_header_that_names_no_key_of_the_issuer_is_refused(
    expected: str, header: dict[str, Any], issuer: Issuer, verifier: Tokens
) -> None:
    assert await refusal(verifier, issuer.mint(issuer.google_claims(), **header), issuer.wants_google()) == expected


async def test_a_payload_that_was_swapped_is_refused(issuer: Issuer, verifier: Tokens) -> None:
    header, _, signature = issuer.google(email="somebody@else.example").split(".")
    _, payload, _ = issuer.google().split(".")
    assert await refusal(verifier, f"{header}.{payload}.{signature}", issuer.wants_google()) == "signature"


async def test_b64_without_crit_changes_nothing_of_what_is_signed(issuer: Issuer, verifier: Tokens) -> None:
    forged = issuer.mint(issuer.google_claims(), b64=False)
    assert await refusal(verifier, forged, issuer.wants_google()) == "signature"


def _saying(payload: bytes) -> str:
    return f"{GOOD_HEADER}.{base64url(payload)}.sig"


GOOD_HEADER = base64url(b'{"alg":"RS256","kid":"key-1"}')
MALFORMED = {
    "empty": "",
    "no dots": "abc",
    "two parts": "abc.def",
    "four parts": "abc.def.ghi.jkl",
    "five parts, encrypted": "a.b.c.d.e",
    "empty parts": "..",
    "no payload": f"{GOOD_HEADER}..sig",
    "not base64url": f"{GOOD_HEADER}.e3+/.sig",
    "padded": f"{GOOD_HEADER}.e30=.sig",
    "space around": f" {GOOD_HEADER}.e30.sig",
    "newline at the end": f"{GOOD_HEADER}.e30.sig\n",
    "one character too many": f"{GOOD_HEADER}.e30ab.sig",
    "another spelling of the same bytes": f"{GOOD_HEADER}.e31.sig",
    "no JSON": _saying(b"{exp}"),
    "a list": _saying(b"[]"),
    "a header that is a text": f"{base64url(b'1')}.e30.sig",
    "not UTF-8": _saying(b"\xff\xfe"),
    "a name twice": _saying(b'{"exp":1,"exp":9999999999}'),
    "an algorithm twice": base64url(b'{"alg":"RS256","alg":"none","kid":"key-1"}') + ".e30.sig",
    "infinity": _saying(b'{"exp":Infinity}'),
    "a NUL": _saying(rb'{"email":"\u0000"}'),
    "half a surrogate": _saying(rb'{"email":"\ud800"}'),
    "deep": _saying(b"[" * 3000),
    "letters outside of ASCII": f"{GOOD_HEADER}.ｅ30.sig",
    "a surrogate": f"{GOOD_HEADER}.\ud800.sig",
}


@pytest.mark.parametrize("token", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_no_token_is_refused_before_the_issuer_is_asked(
    token: str, issuer: Issuer, verifier: Tokens
) -> None:
    assert await refusal(verifier, token, issuer.wants_google()) == "malformed"
    assert issuer.asked == []


async def test_a_token_of_8_kib_is_read_and_a_larger_one_is_not(issuer: Issuer, verifier: Tokens) -> None:
    longest = next(it for size in range(5500, 8192) if len(it := issuer.google(filler="x" * size)) >= 8189)
    assert len(longest) <= 8192
    assert await verifier.verify(longest, issuer.wants_google())
    assert await refusal(verifier, longest + "x" * (8193 - len(longest)), issuer.wants_google()) == "too-large"
    assert await refusal(verifier, "x" * 10_000_000, issuer.wants_google()) == "too-large"


async def test_a_token_that_would_be_refused_anyway_costs_the_issuer_nothing(issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_google()
    for changes in ({"iss": "https://x.example"}, {"aud": "x"}, {"exp": 1, "iat": 0}, {"email": "x"}):
        await refusal(verifier, issuer.google(**changes), wanted)
    await refusal(verifier, compact(issuer.header(alg="none"), issuer.google_claims(), lambda _: b""), wanted)
    assert issuer.asked == []


async def test_tokens_of_two_issuers_do_not_stand_in_for_each_other(
    clock: Clock, issuer: Issuer, verifier: Tokens
) -> None:
    async with Issuer(now=clock) as other:
        other.rotate(keep=False)
        other_token = other.google()
        assert await verifier.verify(other_token, other.wants_google())
        assert await refusal(verifier, other_token, issuer.wants_google()) == "issuer"
        claimed = other.google(iss=issuer.url)
        assert await refusal(verifier, claimed, issuer.wants_google()) == "unknown-key"


async def test_many_tokens_at_once_are_judged_each_on_its_own(issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_google()
    good, bad = issuer.google(), compact(issuer.header(), issuer.google_claims(), lambda _: b"x" * 256)
    results = await asyncio.gather(
        *(verifier.verify(token, wanted) for token in [good, bad] * 20), return_exceptions=True
    )
    assert [isinstance(it, TokenRefused) for it in results] == [False, True] * 20
    assert issuer.fetches == 1


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), letter=st.sampled_from("ABCDwxyz0189-_.=+ \x00é"))
async def test_no_letter_of_a_token_can_be_another(place: float, letter: str, issuer: Issuer, verifier: Tokens) -> None:
    token = issuer.google()
    at = int(place * len(token))
    if token[at] != letter:
        assert await refusal(verifier, token[:at] + letter + token[at + 1 :], issuer.wants_google())


@given(st.text(max_size=300))
def test_any_text_that_is_no_token_is_malformed(text: str) -> None:
    with pytest.raises(TokenRefused, match="malformed"):
        tokens.read(text)
