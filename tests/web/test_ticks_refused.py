"""What has no valid credential is refused with the same bytes, whatever it sends, and whether or not the job exists."""

import hmac
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from service.domain.job import BearerConfig, JobConfig
from service.store.database import Database
from tests.issuers import Issuer, compact, private_key, signer
from tests.scenes import LOOPBACK
from tests.web.conftest import BOOTSTRAP_KEY, JOB, SECRET, Api, called, instant, problem, tick

SLOT = "X-CloudScheduler-ScheduleTime"
STATIC = b"a-static-token-of-the-tests-of-32-or-more"


@pytest_asyncio.fixture(scope="module")
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer() as issuer:
        yield issuer


@pytest_asyncio.fixture(scope="module")
async def guarded_api(shared_database: Database, issuer: Issuer) -> AsyncIterator[Api]:
    """One job of every class, on the database that must stay empty."""
    oidc, bearer = issuer.wants_google(), BearerConfig((STATIC,), "X-Run-Id")
    jobs = (
        JobConfig(JOB, "tick", (SECRET,), oidc=oidc),
        JobConfig("tokens", "tick", oidc=oidc),
        JobConfig("static", "tick", bearer=bearer),
        JobConfig("all", "tick", (b"another-secret-of-the-tests",), oidc=oidc, bearer=bearer),
        JobConfig("signed", "tick", (b"a-third-secret-of-the-tests",)),
    )
    async with called(shared_database, {job.name: job for job in jobs}, LOOPBACK) as api:
        del api.client.headers["authorization"]
        yield api


@pytest_asyncio.fixture
async def guarded(guarded_api: Api) -> AsyncIterator[Api]:
    yield guarded_api
    assert not any((await guarded_api.rows()).values())


EVERY_JOB = (JOB, "tokens", "static", "all", "signed", "nope")


def _with_public_key(issuer: Issuer) -> str:
    """HS256 with the public key for a secret."""
    public = private_key("RS256").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return compact(
        issuer.header(alg="HS256"), issuer.google_claims(), lambda message: hmac.digest(public, message, "sha256")
    )


def _by_another(issuer: Issuer) -> str:
    return compact(issuer.header(), issuer.google_claims(), signer("RS256", private_key("RS256", 99)))


TOKENS: dict[str, Callable[[Issuer], str]] = {
    "alg none": lambda it: compact(it.header(alg="none"), it.google_claims(), lambda _: b""),
    "alg None": lambda it: compact(it.header(alg="None"), it.google_claims(), lambda _: b""),
    "the public key for a secret": _with_public_key,
    "another key of the same name": _by_another,
    "another algorithm": lambda it: it.mint(it.google_claims(), alg="RS512"),
    "no key id": lambda it: it.mint(it.google_claims(), kid=None),
    "unknown key": lambda it: it.mint(it.google_claims(), kid="key-77"),
    "another issuer": lambda it: it.google(iss="https://accounts.example.com"),
    "another audience": lambda it: it.google(aud="https://elsewhere.example"),
    "no audience": lambda it: it.google(aud=None),
    "another email": lambda it: it.google(email="mallory@project.iam.gserviceaccount.com"),
    "an email that is not verified": lambda it: it.google(email_verified=False),
    "an email that says verified": lambda it: it.google(email_verified="true"),
    "no email": lambda it: it.google(email=None),
    "expired": lambda it: it.google(iat=1_700_000_000, exp=1_700_003_600),
    "never expires": lambda it: it.google(exp=None),
    "not yet valid": lambda it: it.google(nbf=4_000_000_000),
    "issued in the future": lambda it: it.google(iat=4_000_000_000),
    "a workflow's": lambda it: it.github(),
    "too large": lambda it: it.google(x="a" * 9000),
    "no object": lambda it: compact(it.header(), b"[]", signer("RS256", private_key("RS256"))),
    "no JSON": lambda _: compact(b"{", b"{", signer("RS256", private_key("RS256"))),
    "dots": lambda _: "..",
    "words": lambda _: "a.b.c",
    "four parts": lambda it: it.google() + ".",
    "an API key": lambda _: BOOTSTRAP_KEY,
    "a static token that is none": lambda _: STATIC.decode() + "x",
    "nothing": lambda _: "",
    "the job's secret": lambda _: SECRET.decode(),
}
BODIES: dict[str, bytes] = {
    "empty": b"",
    "fixed": b"fixed",
    "deep": b"[" * 9000,
    "no fields": b"{}",
    "named": b'{"runId":"r1"}',
    "twice": b'{"runId":"r1","runId":"r2"}',
    "wrongly signed": json.dumps(tick() | {"signature": "0" * 64}).encode(),
}


async def knock(client: httpx.AsyncClient, job: str, token: str | bytes, **sent: Any) -> httpx.Response:
    shown = token if isinstance(token, bytes) else token.encode()
    headers = {b"authorization": b"Bearer " + shown, SLOT.encode(): instant().encode(), b"x-run-id": b"r1"}
    return await client.post(f"/v1/jobs/{job}/ticks", headers=headers, **sent)


async def wrongly_signed(client: httpx.AsyncClient) -> httpx.Response:
    answer = await client.post(f"/v1/jobs/{JOB}/ticks", json=tick() | {"signature": "0" * 64})
    problem(answer, 401, "tick-refused")
    return answer


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
async def test_a_token_that_is_not_the_job_s_is_refused_as_a_wrong_signature_is(
    guarded: Api, issuer: Issuer, token: Callable[[Issuer], str]
) -> None:
    wrong = await wrongly_signed(guarded.client)
    for job in EVERY_JOB:
        answer = await knock(guarded.client, job, token(issuer))
        assert (answer.status_code, answer.content, answer.headers) == (401, wrong.content, wrong.headers), job


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("token", ["unknown key", "expired", "words", "an API key", "nothing"])
async def test_behind_a_token_that_is_refused_no_body_tells_whether_there_is_such_a_job(
    guarded: Api, issuer: Issuer, token: str, body: bytes
) -> None:
    wrong = await wrongly_signed(guarded.client)
    for job in EVERY_JOB:
        answer = await knock(guarded.client, job, TOKENS[token](issuer), content=body)
        assert (answer.status_code, answer.content, answer.headers) == (401, wrong.content, wrong.headers), job


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("scheme", [None, "", "Basic YTpi", "Bearerx", "Digest a"])
async def test_without_a_token_the_body_is_judged_first_and_alike_for_every_job(
    guarded: Api, body: bytes, scheme: str | None
) -> None:
    headers = {} if scheme is None else {"authorization": scheme}
    told = {
        (answer.status_code, answer.content)
        for job in EVERY_JOB
        for answer in [await guarded.client.post(f"/v1/jobs/{job}/ticks", content=body, headers=headers)]
    }
    assert len(told) == 1
    assert next(iter(told))[0] in (400, 401, 422)


@pytest.mark.parametrize(
    ("sent", "status"),
    [({"content": b"a" * 20_000}, 413), ({"content": b"", "headers": {"content-encoding": "gzip"}}, 415)],
)
async def test_a_body_that_is_not_read_is_told_before_who_it_is(
    guarded: Api, issuer: Issuer, sent: dict[str, Any], status: int
) -> None:
    for job in EVERY_JOB:
        headers = {"authorization": f"Bearer {issuer.google()}"} | sent.get("headers", {})
        answer = await guarded.client.post(f"/v1/jobs/{job}/ticks", content=sent["content"], headers=headers)
        assert answer.status_code == status


async def test_two_tokens_and_a_token_that_is_no_text_are_none(guarded: Api, issuer: Issuer) -> None:
    wrong = await wrongly_signed(guarded.client)
    good = f"Bearer {issuer.google()}"
    twice = await guarded.client.post(
        f"/v1/jobs/{JOB}/ticks", headers=[("authorization", good), ("authorization", good), (SLOT, instant())]
    )
    odd = await knock(guarded.client, JOB, b"\xff\xfe.\xc3\xa9.x")
    assert twice.content == odd.content == wrong.content
    assert twice.status_code == odd.status_code == 401
