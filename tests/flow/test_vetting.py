"""What a subscriber must pass to be stored: each fault is named by its place, none of the input comes back."""

from collections.abc import Sequence
from typing import Any

import pytest

from service.domain.errors import Invalid
from service.domain.leases import longest_attempt
from service.domain.signing import new_secret
from service.domain.subscriber import Wanted
from service.flow.egress import Egress
from service.flow.resolver import Unresolved
from service.flow.vetting import Vetting
from tests.wanting import wanted


async def _resolve(host: str, _port: int) -> Sequence[str]:
    if host == "nowhere.example":
        message = "dns: no such name"
        raise Unresolved(message)
    return {"inside.example": ["203.0.114.7", "10.0.0.5"], "mapped.example": ["::ffff:10.0.0.5"]}.get(
        host, ["203.0.114.7"]
    )


async def _faults(subject: Wanted, secret: str | None = None) -> dict[str, str]:
    vetting = Vetting(Egress((), (), _resolve), longest_attempt_seconds=50)
    try:
        await vetting.check(subject, secret)
    except Invalid as refusal:
        return {problem.pointer: problem.detail for problem in refusal.problems}
    return {}


async def test_a_plain_subscriber_passes() -> None:
    assert await _faults(wanted()) == {}


BOUNDS = {
    "max_concurrency": ("/maxConcurrency", (1, 1000), (0, -1, 1001, 10**400)),
    "rate_per_second": ("/ratePerSecond", (None, 0.001, 10_000), (0, 0.0009, 10_001, -1, float("nan"), float("inf"))),
    "timeout_seconds": ("/timeoutSeconds", (0.5, 50), (0.49, 50.01, 0, -1, float("nan"))),
    "max_attempts": ("/maxAttempts", (1, 100), (0, 101, -5)),
    "backoff_base_seconds": ("/backoffBaseSeconds", (0.01, 3600), (0.009, 3601, 0, float("nan"))),
    "backoff_cap_seconds": ("/backoffCapSeconds", (1, 86_400), (0.99, 86_401, float("inf"))),
    "deadline_seconds": ("/deadlineSeconds", (1, 30 * 86_400), (0.99, 30 * 86_400 + 1, float("nan"))),
}


@pytest.mark.parametrize(("field", "value"), [(name, v) for name, (_, inside, _) in BOUNDS.items() for v in inside])
async def test_every_number_passes_at_its_bounds(field: str, value: Any) -> None:
    more = {"backoff_cap_seconds": 86_400.0} if field == "backoff_base_seconds" else {}
    assert await _faults(wanted(**({field: value} | more))) == {}


@pytest.mark.parametrize(("field", "value"), [(name, v) for name, (_, _, out) in BOUNDS.items() for v in out])
async def test_every_number_beyond_its_bounds_is_refused_by_its_pointer(field: str, value: Any) -> None:
    more = {"backoff_cap_seconds": 86_400.0} if field == "backoff_base_seconds" else {}
    faults = await _faults(wanted(**({field: value} | more)))
    assert list(faults) == [BOUNDS[field][0]]
    assert faults[BOUNDS[field][0]].startswith("must be between ")


async def test_a_lease_that_the_default_timeout_does_not_fit_is_named_with_the_mend() -> None:
    vetting = Vetting(Egress((), (), _resolve), longest_attempt(8))
    with pytest.raises(Invalid) as refusal:
        await vetting.check(wanted(), None)
    [problem] = refusal.value.problems
    assert problem.pointer == "/timeoutSeconds"
    assert problem.detail == (
        "must be between 0.5 and 6: the default of 15 does not fit under TOCSIN_LEASE_SECONDS=8: give timeoutSeconds, "
        "or raise the lease"
    )
    await vetting.check(wanted(timeout_seconds=6.0), None)


async def test_the_cap_of_the_backoff_lies_at_or_above_its_base() -> None:
    assert await _faults(wanted(backoff_base_seconds=60.0, backoff_cap_seconds=60.0)) == {}
    faults = await _faults(wanted(backoff_base_seconds=60.0, backoff_cap_seconds=59.0))
    assert faults == {"/backoffCapSeconds": "must be between 60 and 86400"}


@pytest.mark.parametrize(
    "slug", ["", "A", "-a", "_a", "a.b", "a b", "é", "a/b", "a\x00b", "a\n", "x" * 64, "..", "a%2Fb", "\ud800"]
)
async def test_a_slug_that_a_webhook_id_could_not_carry_is_refused(slug: str) -> None:
    assert list(await _faults(wanted(slug, url="https://acme.example/"))) == ["/id"]


@pytest.mark.parametrize("slug", ["a", "0", "a_b-c", "x" * 63])
async def test_a_slug_of_the_documented_letters_passes(slug: str) -> None:
    assert await _faults(wanted(slug, url="https://acme.example/")) == {}


@pytest.mark.parametrize("tenant", ["", " ", "a b", "a\x00", "-a", "x" * 101, "\udc00"])
async def test_a_tenant_outside_its_alphabet_is_refused(tenant: str) -> None:
    assert list(await _faults(wanted(tenant_id=tenant))) == ["/tenantId"]


@pytest.mark.parametrize(
    ("patterns", "pointer"),
    [
        ((), "/eventTypes"),
        (tuple(f"t{n}" for n in range(101)), "/eventTypes"),
        (("ok", ""), "/eventTypes/1"),
        (("*.shipment",), "/eventTypes/0"),
        (("shipment.**",), "/eventTypes/0"),
        (("ship*",), "/eventTypes/0"),
        (("a..b",), "/eventTypes/0"),
        (("a\x00",), "/eventTypes/0"),
        (("x" * 129,), "/eventTypes/0"),
        (("a", "b", "a"), "/eventTypes/2"),
    ],
)
async def test_a_pattern_that_could_match_nothing_is_refused(patterns: tuple[str, ...], pointer: str) -> None:
    assert list(await _faults(wanted(event_types=patterns))) == [pointer]


@pytest.mark.parametrize("patterns", [("*",), ("shipment.*", "order.paid"), ("a",)])
async def test_patterns_of_the_three_forms_pass(patterns: tuple[str, ...]) -> None:
    assert await _faults(wanted(event_types=patterns)) == {}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example",
        "ftp://hooks.example/",
        "file:///etc/passwd",
        "https://",
        "https:///path",
        "https://user:pa55@hooks.example/",
        "https://hooks.example/#SECRET",
        "https://hooks.example/a b",
        "https://hooks.example/a\nb",
        "https://hooks.example/\x00",
        "https://hooks.example/\ud800",
        "https://hooks.example:0/",
        "https://hooks.example:99999/",
        "https://hooks.example/" + "x" * 2048,
        "http://2130706433/",
        "http://017700000001/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://①②⑦.⓪.⓪.①/",
        "http://127.0.0.1/SECRET?token=S3",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[fe80::1%25eth0]/",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.5/",
        "https://inside.example/SECRET",
        "https://mapped.example/",
    ],
)
async def test_a_url_that_may_not_be_called_is_refused_without_being_repeated(url: str) -> None:
    faults = await _faults(wanted(url=url))
    assert list(faults) == ["/url"]
    for hidden in ("SECRET", "S3", "pa55", "hooks.example", "inside.example"):
        assert hidden not in faults["/url"]


@pytest.mark.parametrize("url", ["https://hooks.example/T/B?token=x", "http://hooks.example:8080", "https://8.8.8.8/"])
async def test_a_url_that_leads_outside_passes(url: str) -> None:
    assert await _faults(wanted(url=url)) == {}


async def test_a_name_that_cannot_be_looked_up_now_passes_because_it_is_judged_again_when_dialled() -> None:
    assert await _faults(wanted(url="https://nowhere.example/")) == {}


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "1\r\nX-B: 2"},
        {"X-A": "é"},
        {"X A": "1"},
        {"Host": "internal"},
        {"content-LENGTH": "0"},
        {"Transfer-Encoding": "chunked"},
        {"webhook-signature": "v1,x"},
        {"tocsin-run": "x"},
        {"X": 1},
        {"X": None},
        {f"x-{n}": "1" for n in range(200)},
        {"X-A": "v" * 65_536},
        {"X-A": "1", "x-a": "2"},
        {"X-A": "a\x00"},
        {"": "1"},
    ],
    ids=lambda headers: next(iter(headers)),
)
async def test_a_header_that_could_break_the_request_is_refused(headers: dict[str, Any]) -> None:
    faults = await _faults(wanted(headers=headers))
    assert faults
    assert all(pointer.startswith("/headers") for pointer in faults)


async def test_ordinary_headers_pass() -> None:
    assert await _faults(wanted(headers={"Authorization": "Bearer t", "x-team": "north"})) == {}


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_not-base64!",
        "whsec_" + "-_" * 16,
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        '"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"',
        " whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
        "whsec_x",
        "whsec_",
        "whsec_" + "A" * 28,
        "whsec_" + "A" * 88,
        "whsec_é",
        "\ud800",
    ],
)
async def test_a_malformed_secret_is_refused_by_naming_the_mistake_not_the_secret(secret: str) -> None:
    faults = await _faults(wanted(), secret)
    assert list(faults) == ["/secret"]
    assert "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" not in faults["/secret"]


@pytest.mark.parametrize("length", [24, 32, 64])
async def test_a_secret_of_24_to_64_bytes_passes(length: int) -> None:
    assert await _faults(wanted(), new_secret(bytes(length))) == {}


async def test_all_faults_are_named_at_once() -> None:
    faults = await _faults(
        wanted("A", url="ftp://x", tenant_id="", event_types=(), max_attempts=0, headers={"Host": "x"}), "x"
    )
    assert set(faults) == {"/id", "/url", "/tenantId", "/eventTypes", "/maxAttempts", "/headers/Host", "/secret"}
