"""While an issuer is down its keys go on being used, for a week; one that was never reached lets its callers wait."""

import asyncio

import pytest
from structlog.testing import capture_logs

from service.domain.errors import Unavailable
from service.flow import issuers
from service.flow.tokens import Tokens
from tests.flow.egress_parts import loopback
from tests.issuers import Clock, Issuer, compact, refusal
from tests.receivers import DISCONNECT, DISCONNECT_MIDWAY, ENDLESS, HANG, Answer, answer, drip

DAY = 86_400
FAULTS = {
    "500": answer(500),
    "503": answer(503, headers={"retry-after": "3600"}),
    "404": answer(404),
    "204": answer(204),
    "redirect": answer(302, headers={"location": "/"}),
    "an error page": answer(body=b"<html>Sorry</html>"),
    "nothing": answer(body=b""),
    "no HTTP": Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n"),
    "cut": DISCONNECT,
    "cut midway": DISCONNECT_MIDWAY,
    "endless": ENDLESS,
}
SLOW = {"silent": HANG, "dripping": drip(b"x" * 1000, every=0.1)}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_known_keys_are_used_while_the_issuer_is_down(
    fault: Answer, clock: Clock, issuer: Issuer, verifier: Tokens
) -> None:
    wanted = issuer.wants_google()
    await verifier.verify(issuer.google(), wanted)
    issuer.away = fault
    for _ in range(6):
        clock.turn(DAY)
        with capture_logs() as lines:
            assert await verifier.verify(issuer.google(), wanted)
        assert [(line["event"], line["keys"]) for line in lines] == [("issuer.away", 1)]
    issuer.away = None
    clock.turn(DAY)
    assert await verifier.verify(issuer.google(), wanted)


@pytest.mark.parametrize("fault", [*FAULTS.values(), *SLOW.values()], ids=[*FAULTS, *SLOW])
async def test_an_issuer_that_was_never_reached_makes_its_callers_come_again(
    fault: Answer, clock: Clock, issuer: Issuer, verifier: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault in SLOW.values():
        monkeypatch.setattr(issuers, "FETCH_SECONDS", 0.3)
    wanted = issuer.wants_google()
    issuer.away = fault
    for _ in range(3):
        with pytest.raises(Unavailable):
            await verifier.verify(issuer.google(), wanted)
    assert len(issuer.asked) == 1, "it is asked once in 30 s, whoever comes"
    issuer.away = None
    clock.turn(30)
    assert await verifier.verify(issuer.google(), wanted)


async def test_an_issuer_that_cannot_be_connected_to_is_away(clock: Clock, verifier: Tokens) -> None:
    async with Issuer(now=clock) as gone:
        pass
    with capture_logs() as lines, pytest.raises(Unavailable):
        await verifier.verify(gone.google(), gone.wants_google())
    assert [line["detail"] for line in lines] == ["connect: refused"]


async def test_only_a_token_that_looks_right_may_wait_for_the_issuer(issuer: Issuer, verifier: Tokens) -> None:
    issuer.away = answer(503)
    wanted = issuer.wants_google()
    assert await refusal(verifier, issuer.google(email="somebody@else.example"), wanted) == "claim"
    assert (
        await refusal(verifier, compact({"alg": "none"}, issuer.google_claims(), lambda _: b""), wanted) == "algorithm"
    )
    assert issuer.asked == []
    with pytest.raises(Unavailable):
        await verifier.verify(issuer.google(), wanted)


async def test_a_week_without_its_issuer_ends_the_belief_in_its_keys(
    clock: Clock, issuer: Issuer, verifier: Tokens
) -> None:
    wanted = issuer.wants_google()
    await verifier.verify(issuer.google(), wanted)
    issuer.away = answer(503)
    clock.turn(7 * DAY)
    assert await verifier.verify(issuer.google(), wanted)
    clock.turn(1)
    assert await refusal(verifier, issuer.google(), wanted) == "issuer-away"
    issuer.away = None
    clock.turn(30)
    assert await verifier.verify(issuer.google(), wanted)


async def test_a_new_key_cannot_be_told_from_a_made_up_one_while_the_issuer_is_down(
    clock: Clock, issuer: Issuer, verifier: Tokens
) -> None:
    wanted = issuer.wants_google()
    before = issuer.google()
    await verifier.verify(before, wanted)
    issuer.rotate()
    issuer.away = answer(503)
    clock.turn(60)
    assert await refusal(verifier, issuer.google(), wanted) == "issuer-away"
    assert await verifier.verify(before, wanted)
    issuer.away = None
    assert await refusal(verifier, issuer.google(), wanted) == "issuer-away"
    clock.turn(30)
    assert await verifier.verify(issuer.google(), wanted)


async def test_an_outage_costs_a_tick_one_fetch_in_30_seconds(clock: Clock, issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_google()
    await verifier.verify(issuer.google(), wanted)
    issuer.away = answer(503)
    clock.turn(3600)
    for _ in range(10):
        await verifier.verify(issuer.google(), wanted)
    assert len(issuer.asked) == 3
    clock.turn(30)
    await verifier.verify(issuer.google(), wanted)
    assert len(issuer.asked) == 4


async def test_two_issuers_do_not_share_an_outage(clock: Clock, issuer: Issuer, verifier: Tokens) -> None:
    async with Issuer(now=clock) as other:
        other.away = answer(503)
        with pytest.raises(Unavailable):
            await verifier.verify(other.google(), other.wants_google())
        assert await verifier.verify(issuer.google(), issuer.wants_google())


async def test_closing_gives_up_what_is_being_fetched(clock: Clock, issuer: Issuer) -> None:
    issuer.away = HANG
    egress = loopback()
    verifier = Tokens(egress, now=clock, elapsed=clock)
    waiting = asyncio.ensure_future(verifier.verify(issuer.google(), issuer.wants_google()))
    await issuer.receiver.received(1)
    await verifier.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await egress.close()


async def test_nothing_of_a_token_or_an_answer_reaches_the_log(clock: Clock, issuer: Issuer, verifier: Tokens) -> None:
    wanted = issuer.wants_google()
    issuer.away = answer(500, headers={"x-secret": "sesame"}, body=b"sesame")
    token = issuer.google(nonce="sesame")
    with capture_logs() as lines, pytest.raises(Unavailable):
        await verifier.verify(token, wanted)
    issuer.away = answer(body=b'{"sesame": "sesame"}')
    clock.turn(30)
    with capture_logs() as more, pytest.raises(Unavailable):
        await verifier.verify(token, wanted)
    told = repr([*lines, *more])
    assert len(lines) == len(more) == 1
    assert "sesame" not in told
    assert not any(part in told for part in token.split("."))
