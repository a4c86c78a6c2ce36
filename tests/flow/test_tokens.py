"""A token ticks only if its issuer made it, for us, now, and for whom the job names; every other one is refused."""

from typing import Any

import pytest

from service.domain.jwks import ALGORITHMS
from service.flow.tokens import Tokens
from tests.issuers import AUDIENCE, EMAIL, Clock, Issuer, compact, private_key, refusal, signer

NEVER = 253_402_300_800


async def test_a_token_as_google_makes_it_is_believed(issuer: Issuer, verifier: Tokens) -> None:
    claims = await verifier.verify(issuer.google(), issuer.wants_google())
    assert claims == issuer.google_claims()


async def test_a_token_as_github_makes_it_is_believed(issuer: Issuer, verifier: Tokens) -> None:
    claims = await verifier.verify(issuer.github(), issuer.wants_github())
    assert claims["workflow_ref"] == issuer.github_claims()["workflow_ref"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_every_allowed_algorithm_verifies_and_no_other_key_does(
    algorithm: str, clock: Clock, verifier: Tokens
) -> None:
    async with Issuer(algorithm=algorithm, now=clock) as issuer:
        wanted = issuer.wants_google()
        assert await verifier.verify(issuer.google(), wanted)
        claims, stranger = issuer.google_claims(), private_key(algorithm, 99)
        assert (
            await refusal(verifier, compact(issuer.header(), claims, signer(algorithm, stranger)), wanted)
            == "signature"
        )
        assert await refusal(verifier, compact(issuer.header(), claims, lambda _: b""), wanted) == "signature"
        assert await refusal(verifier, compact(issuer.header(), claims, lambda _: b"\0" * 64), wanted) == "signature"


CLAIMS: list[tuple[str, dict[str, Any]]] = [
    ("issuer", {"iss": "https://accounts.example"}),
    ("issuer", {"iss": None}),
    ("issuer", {"iss": 7}),
    ("issuer", {"iss": ["https://accounts.example"]}),
    ("audience", {"aud": f"{AUDIENCE}/"}),
    ("audience", {"aud": AUDIENCE.upper()}),
    ("audience", {"aud": None}),
    ("audience", {"aud": ""}),
    ("audience", {"aud": []}),
    ("audience", {"aud": {AUDIENCE: True}}),
    ("audience", {"aud": [AUDIENCE, 7]}),
    ("audience", {"aud": [[AUDIENCE]]}),
    ("claim", {"email": "somebody@project.iam.gserviceaccount.com"}),
    ("claim", {"email": EMAIL.upper()}),
    ("claim", {"email": None}),
    ("claim", {"email": [EMAIL]}),
    ("claim", {"email_verified": None}),
    ("claim", {"email_verified": False}),
    ("claim", {"email_verified": "true"}),
    ("claim", {"email_verified": 1}),
    ("malformed", {"exp": None}),
    ("malformed", {"exp": "4102444800"}),
    ("malformed", {"exp": True}),
    ("malformed", {"exp": [4102444800]}),
    ("malformed", {"exp": NEVER}),
    ("malformed", {"exp": 10**400}),
    ("malformed", {"exp": -1}),
    ("malformed", {"iat": None}),
    ("malformed", {"iat": "1796000000"}),
    ("malformed", {"nbf": "1796000000"}),
    ("malformed", {"nbf": True}),
]


@pytest.mark.parametrize(("expected", "changes"), CLAIMS, ids=lambda it: it if isinstance(it, str) else repr(it)[:60])
async def test_a_properly_signed_token_that_says_something_else_is_refused(
    expected: str, changes: dict[str, Any], issuer: Issuer, verifier: Tokens
) -> None:
    assert await refusal(verifier, issuer.google(**changes), issuer.wants_google()) == expected


async def test_one_audience_of_several_is_enough(issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_google(audience=("https://elsewhere.example", AUDIENCE))
    assert await verifier.verify(issuer.google(aud=["https://other.example", AUDIENCE]), wanted)
    assert await refusal(verifier, issuer.google(aud=["https://other.example"]), wanted) == "audience"


@pytest.mark.parametrize(("said", "asked"), [("74", 74), (74, "74"), (1, True), (True, 1), (1.0, 1), (0, False)])
async def test_claims_are_compared_with_their_type(said: Any, asked: Any, issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_github(claims={"repository_id": asked})
    assert await refusal(verifier, issuer.github(repository_id=said), wanted) == "claim"
    assert await verifier.verify(issuer.github(repository_id=asked), wanted)


async def test_every_wanted_claim_must_be_there(issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_github()
    for name in wanted.claims:
        assert await refusal(verifier, issuer.github(**{name: "another"}), wanted) == "claim"
        assert await refusal(verifier, issuer.github(**{name: None}), wanted) == "claim"


async def test_a_job_that_wants_no_claim_at_all_lets_nobody_in(issuer: Issuer, verifier: Tokens) -> None:
    assert await refusal(verifier, issuer.google(), issuer.wants_google(claims={})) == "claim"


async def test_a_token_is_good_from_its_beginning_to_its_end_and_30_seconds_around(
    clock: Clock, issuer: Issuer, verifier: Tokens
) -> None:
    token, wanted = issuer.google(), issuer.wants_google()
    for seconds, expected in ((-30.5, "not-yet-valid"), (3630, "expired"), (86_400, "expired")):
        clock.turn(seconds)
        assert await refusal(verifier, token, wanted) == expected
        clock.turn(-seconds)
    for seconds in (-30.0, 0.0, 3629.5):
        clock.turn(seconds)
        assert await verifier.verify(token, wanted)
        clock.turn(-seconds)


async def test_a_token_that_begins_later_is_not_yet_valid(clock: Clock, issuer: Issuer, verifier: Tokens) -> None:
    now, wanted = int(clock()), issuer.wants_google()
    assert await refusal(verifier, issuer.google(nbf=now + 31), wanted) == "not-yet-valid"
    assert await refusal(verifier, issuer.google(iat=now + 31), wanted) == "not-yet-valid"
    assert await refusal(verifier, issuer.google(nbf=now - 60, iat=now + 31), wanted) == "not-yet-valid"
    assert await verifier.verify(issuer.google(nbf=now + 29.5), wanted)


async def test_a_token_that_ends_before_it_was_made_is_malformed(
    issuer: Issuer, verifier: Tokens, clock: Clock
) -> None:
    now = int(clock())
    assert await refusal(verifier, issuer.google(iat=now, exp=now), issuer.wants_google()) == "malformed"
