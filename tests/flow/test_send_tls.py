"""TLS: the certificate is judged by the name in the URL, although the socket goes to the vetted address."""

from typing import Any

import pytest

from service.domain.model import Outcome
from service.flow.egress import Egress
from service.flow.send import send
from tests.certificates import DAY, Authority
from tests.flow.egress_parts import loopback, names, request
from tests.receivers import Receiver


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs the certificates of this module's receivers."""
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def egress(authority: Authority) -> Egress:
    """One that trusts the authority and knows `hooks.test`."""
    return loopback(names(hooks=["127.0.0.1"]), extra_roots=authority.pem)


async def test_a_certificate_for_the_name_in_the_url_is_accepted(authority: Authority, egress: Egress) -> None:
    async with Receiver(tls=authority.server("hooks.test")) as receiver:
        sent = await send(egress, request(f"https://hooks.test:{receiver.port}/"))
        assert (sent.outcome, sent.status) == (Outcome.DELIVERED, 200)
        assert receiver.requests[0].header("host") == f"hooks.test:{receiver.port}"


async def test_a_final_dot_does_not_change_the_name_that_is_checked(authority: Authority, egress: Egress) -> None:
    async with Receiver(tls=authority.server("hooks.test")) as receiver:
        sent = await send(egress, request(f"https://HOOKS.test.:{receiver.port}/"))
        assert sent.outcome is Outcome.DELIVERED


async def test_an_address_in_the_url_needs_a_certificate_for_that_address(authority: Authority, egress: Egress) -> None:
    async with (
        Receiver(tls=authority.server("127.0.0.1")) as good,
        Receiver(tls=authority.server("hooks.test")) as bad,
    ):
        assert (await send(egress, request(good.url))).outcome is Outcome.DELIVERED
        assert (await send(egress, request(bad.url))).outcome is Outcome.UNREACHABLE
        assert bad.requests == []


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"valid": (-5 * DAY, -DAY)}, "has expired"),
    "future": ({"valid": (DAY, 5 * DAY)}, "not valid yet"),
    "wrong": ({"names": ["other.test", "127.0.0.1"]}, "for another name"),
    "self-signed": ({"self_signed": True}, "not trusted"),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_certificate_is_unreachable_with_its_reason(
    kind: str, authority: Authority, egress: Egress
) -> None:
    wanted, told = BAD[kind]
    wanted = dict(wanted)
    context = authority.server(*wanted.pop("names", ["hooks.test"]), **wanted)
    async with Receiver(tls=context) as receiver:
        sent = await send(egress, request(f"https://hooks.test:{receiver.port}/"))
        assert receiver.requests == []
    assert sent.outcome is Outcome.UNREACHABLE
    assert str(sent.detail).startswith("tls: ")
    assert told in str(sent.detail)


async def test_an_authority_that_nobody_named_is_not_trusted(authority: Authority) -> None:
    async with Receiver(tls=authority.server("hooks.test")) as receiver:
        egress = loopback(names(hooks=["127.0.0.1"]))
        sent = await send(egress, request(f"https://hooks.test:{receiver.port}/"))
        assert sent.outcome is Outcome.UNREACHABLE
        assert "not trusted" in str(sent.detail)
        assert receiver.requests == []


async def test_plain_http_where_tls_was_asked_for_is_unreachable(egress: Egress) -> None:
    async with Receiver() as receiver:
        sent = await send(egress, request(f"https://hooks.test:{receiver.port}/", timeout_seconds=0.5))
        assert sent.outcome is Outcome.UNREACHABLE
        assert receiver.requests == []


async def test_tls_where_plain_http_was_asked_for_is_no_answer(authority: Authority, egress: Egress) -> None:
    async with Receiver(tls=authority.server("hooks.test")) as receiver:
        sent = await send(egress, request(f"http://hooks.test:{receiver.port}/"))
        assert sent.outcome is Outcome.DISCONNECTED
        assert receiver.requests == []
