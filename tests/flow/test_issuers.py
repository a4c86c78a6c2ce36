"""An issuer's keys are fetched when they are needed, no oftener than that, and only from where the guard lets us."""

import asyncio
import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.domain.errors import Unavailable
from service.flow.egress import Egress
from service.flow.tokens import Tokens
from tests.certificates import Authority
from tests.flow.egress_parts import Names, loopback
from tests.issuers import DISCOVERY_PATH, KEYS_PATH, Clock, Issuer, compact, private_key, refusal, signer
from tests.receivers import Receiver, answer


def stranger(issuer: Issuer, key_id: str = "never-seen") -> str:
    """A token that says all the right things, signed with a key that its issuer does not know."""
    return compact(issuer.header(kid=key_id), issuer.google_claims(), signer("RS256", private_key("RS256", 66)))


async def away(verifier: Tokens, issuer: Issuer) -> str:
    """Why the issuer's keys cannot be had, as the log says it; the caller is asked to come again."""
    with capture_logs() as lines, pytest.raises(Unavailable, match="ask again"):
        await verifier.verify(issuer.google(), issuer.wants_google())
    (line,) = lines
    assert (line["event"], line["issuer"], line["keys"]) == ("issuer.away", issuer.url, 0)
    return str(line["detail"])


async def test_keys_are_fetched_once_and_kept(issuer: Issuer, verifier: Tokens) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            await verifier.verify(issuer.google(), issuer.wants_google())
    assert issuer.asked == [DISCOVERY_PATH, KEYS_PATH]
    assert [(line["event"], line["keys"], line["fresh_seconds"]) for line in lines] == [("issuer.fetched", 1, 3600)]


async def test_a_configured_address_of_keys_spares_the_discovery(issuer: Issuer, verifier: Tokens) -> None:
    await verifier.verify(issuer.google(), issuer.wants_google(jwks_uri=issuer.origin + KEYS_PATH))
    assert issuer.asked == [KEYS_PATH]


@pytest.mark.parametrize("path", ["/", "/tenant", "/tenant/v2.0/"])
async def test_an_issuer_may_have_a_path(path: str, clock: Clock, verifier: Tokens) -> None:
    async with Issuer(now=clock, path=path) as issuer:
        assert await verifier.verify(issuer.google(), issuer.wants_google())
        assert issuer.asked[0] == path.removesuffix("/") + DISCOVERY_PATH


async def test_many_who_come_at_once_share_one_fetch(issuer: Issuer, verifier: Tokens) -> None:
    hold = asyncio.Event()
    issuer.pages[DISCOVERY_PATH] = answer(body=_discovery(issuer), hold=hold)
    waiting = [asyncio.ensure_future(verifier.verify(issuer.google(), issuer.wants_google())) for _ in range(20)]
    await issuer.receiver.received(1)
    waiting[0].cancel()
    hold.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(isinstance(it, dict) for it in results[1:])
    assert issuer.asked == [DISCOVERY_PATH, KEYS_PATH]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (None, 3600),
        ("public, max-age=21600, must-revalidate", 21_600),
        ("max-age=7200", 7200),
        ("MAX-AGE=7200", 7200),
        ("max-age=1", 300),
        ("max-age=0", 300),
        ("max-age=999999999", 86_400),
        ("max-age=99999999999999999999", 3600),
        ("max-age=-1", 3600),
        ("max-age=soon", 3600),
        ("s-max-age=7200", 3600),
        ("no-store", 300),
        ("no-cache, max-age=7200", 300),
        ("ÿþ", 3600),
    ],
)
async def test_keys_are_good_for_as_long_as_their_issuer_says_within_limits(
    said: str | None, seconds: int, clock: Clock, issuer: Issuer, verifier: Tokens
) -> None:
    issuer.headers = {} if said is None else {"cache-control": said}
    wanted = issuer.wants_google()
    await verifier.verify(issuer.google(), wanted)
    clock.turn(seconds - 1)
    await verifier.verify(issuer.google(), wanted)
    assert issuer.fetches == 1
    clock.turn(1)
    await verifier.verify(issuer.google(), wanted)
    assert issuer.fetches == 2


async def test_a_new_key_is_found_by_its_first_token(clock: Clock, issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_google()
    before = issuer.google()
    await verifier.verify(before, wanted)
    clock.turn(60)
    issuer.rotate()
    assert await verifier.verify(issuer.google(), wanted)
    assert await verifier.verify(before, wanted)
    assert issuer.fetches == 2


async def test_a_key_that_is_withdrawn_is_not_believed_once_the_keys_are_fetched_again(
    clock: Clock, issuer: Issuer, verifier: Tokens
) -> None:
    wanted = issuer.wants_google()
    before = issuer.google(exp=int(clock()) + 86_400)
    await verifier.verify(before, wanted)
    issuer.rotate(keep=False)
    clock.turn(3600)
    assert await refusal(verifier, before, wanted) == "unknown-key"
    assert await verifier.verify(issuer.google(), wanted)
    issuer.published = []
    clock.turn(3600)
    assert await refusal(verifier, issuer.google(), wanted) == "unknown-key"


async def test_unknown_keys_make_us_ask_once_in_30_seconds(clock: Clock, issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_google()
    for number in range(50):
        assert await refusal(verifier, stranger(issuer, f"k{number}"), wanted) == "unknown-key"
    assert issuer.fetches == 1
    clock.turn(29.9)
    assert await refusal(verifier, stranger(issuer), wanted) == "unknown-key"
    assert issuer.fetches == 1
    clock.turn(0.1)
    results = await asyncio.gather(
        *(verifier.verify(stranger(issuer), wanted) for _ in range(20)), return_exceptions=True
    )
    assert {str(it) for it in results} == {"unknown-key"}
    assert issuer.fetches == 2
    assert await verifier.verify(issuer.google(), wanted)


async def test_a_redirect_is_not_followed(issuer: Issuer, verifier: Tokens) -> None:
    async with Receiver(then=answer(body=_discovery(issuer))) as elsewhere:
        for status in (301, 302, 303, 307, 308):
            issuer.pages[DISCOVERY_PATH] = answer(status, headers={"location": elsewhere.url})
            assert (
                await away(_again(verifier), issuer)
                == f"answered {status}, which is not 200; redirects are not followed"
            )
        issuer.pages = {KEYS_PATH: answer(302, headers={"location": elsewhere.url})}
        assert "answered 302" in await away(_again(verifier), issuer)
        assert elsewhere.requests == []


async def test_a_discovery_document_of_another_issuer_is_refused(issuer: Issuer, verifier: Tokens) -> None:
    for other in (issuer.url + "/", "https://accounts.example", issuer.url.upper()):
        issuer.pages[DISCOVERY_PATH] = answer(body=_discovery(issuer, issuer=other))
        assert "names another issuer" in await away(_again(verifier), issuer)
    assert issuer.fetches == 0


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"keys": 7}', b'{"keys":[],"keys":[]}', b"\x1f\x8b\x08\x00", b'{"keys": [']
)
async def test_an_answer_that_is_no_set_of_keys_is_none(body: bytes, issuer: Issuer, verifier: Tokens) -> None:
    issuer.pages[KEYS_PATH] = answer(body=body)
    assert await away(verifier, issuer) == "what it answers is no JSON Web Key Set"


async def test_keys_of_256_kib_are_read_and_more_are_not(issuer: Issuer, verifier: Tokens) -> None:
    body = json.dumps({"keys": [issuer.jwk(1)]}).encode()
    issuer.pages[KEYS_PATH] = answer(body=body + b" " * (256 * 1024 + 1 - len(body)))
    assert "longer than 262144 bytes" in await away(_again(verifier), issuer)
    issuer.pages[KEYS_PATH] = answer(body=body + b" " * (256 * 1024 - len(body)))
    assert await _again(verifier).verify(issuer.google(), issuer.wants_google())


async def test_an_issuer_at_a_blocked_address_is_never_asked(clock: Clock, issuer: Issuer) -> None:
    verifier = Tokens(Egress((), ()), now=clock, elapsed=clock)
    assert "a loopback address" in await away(verifier, issuer)
    assert issuer.asked == []


@pytest.mark.parametrize(
    ("uri", "fault"),
    [
        ("http://169.254.169.254/latest/meta-data/", "metadata"),
        ("http://10.0.0.1/keys", "private address"),
        ("http://[::ffff:10.0.0.1]/keys", "private address"),
        ("http://0x0a000001/keys", "address"),
        ("file:///etc/passwd", "the url"),
        ("http://user:pw@127.0.0.1/keys", "the url"),
        ("gopher://127.0.0.1/keys", "the url"),
        ("", "the url"),
        ("http://127.0.0.1:1/\r\nx: y", "the url"),
    ],
)
async def test_a_discovery_document_cannot_lead_us_to_a_blocked_address(
    uri: str, fault: str, issuer: Issuer, verifier: Tokens
) -> None:
    issuer.pages[DISCOVERY_PATH] = answer(body=_discovery(issuer, jwks_uri=uri))
    detail = await away(verifier, issuer)
    assert fault in detail
    assert not uri or uri not in detail


async def test_an_issuer_with_a_name_is_reached_over_tls_at_its_vetted_address(clock: Clock, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    known = Names({"issuer.test": [["127.0.0.1"]]})
    egress = loopback(known, extra_roots=authority.pem)
    async with Issuer(now=clock, tls=authority.server("issuer.test"), name="issuer.test") as issuer:
        assert issuer.url.startswith("https://issuer.test:")
        assert await Tokens(egress, now=clock, elapsed=clock).verify(issuer.google(), issuer.wants_google())
        issuer.pages[DISCOVERY_PATH] = answer(body=_discovery(issuer, jwks_uri="http://127.0.0.1:9/keys"))
        assert "not https" in await away(Tokens(egress, now=clock, elapsed=clock), issuer)
        assert "tls" in await away(Tokens(loopback(known), now=clock, elapsed=clock), issuer)
    await egress.close()


def _discovery(local: Issuer, **changes: str) -> bytes:
    return json.dumps({"issuer": local.url, "jwks_uri": local.origin + KEYS_PATH} | changes).encode()


def _again(verifier: Tokens) -> Tokens:
    """Another verifier with the same way out, that knows nothing yet."""
    return Tokens(verifier._issuers._egress, now=verifier._now, elapsed=verifier._now)
