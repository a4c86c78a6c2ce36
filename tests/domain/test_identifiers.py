"""Names and ids: which are allowed, and that what leaves the house can be read again."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain import identifiers

EVENT = UUID("0197f2a0-1111-7222-8333-444455556666")

JOBS = {
    "shipments.expire": True,
    "a": True,
    "0-_.": True,
    "a" * 100: True,
    "a" * 101: False,
    "": False,
    "A": False,
    ".a": False,
    "-a": False,
    "a/b": False,
    "a b": False,
    "a\n": False,
    "é": False,
    "a\x00": False,
    "../admin": False,
    "a%2Fb": False,
}

SUBSCRIBERS = {
    "billing": True,
    "b_1-x": True,
    "0": True,
    "a" * 63: True,
    "a" * 64: False,
    "a.b": False,
    "_a": False,
    "A": False,
    "": False,
    "a\n": False,
    "a:b": False,
}

TYPES = {
    "shipment.expired": True,
    "shipment": True,
    "A-b_c.D9": True,
    "a" * 128: True,
    "a" * 129: False,
    "": False,
    ".": False,
    "a.": False,
    ".a": False,
    "a..b": False,
    "*": False,
    "a.*": False,
    "a b": False,
    "a\n": False,
    "é": False,
    "<b>": False,
}

PATTERNS = {
    "*": True,
    "shipment.*": True,
    "shipment.expired": True,
    "a.b.*": True,
    ".*": False,
    "**": False,
    "*.expired": False,
    "shipment*": False,
    "shipment.*.x": False,
    "shipment.*.*": False,
    "": False,
    "shipment.": False,
}


@pytest.mark.parametrize(("name", "allowed"), JOBS.items())
def test_job_names(name: str, allowed: bool) -> None:
    assert identifiers.is_job_name(name) is allowed


@pytest.mark.parametrize(("name", "allowed"), SUBSCRIBERS.items())
def test_subscriber_slugs_have_no_dot(name: str, allowed: bool) -> None:
    assert identifiers.is_subscriber_slug(name) is allowed


@pytest.mark.parametrize(("name", "allowed"), TYPES.items())
def test_event_types_are_dotted_words(name: str, allowed: bool) -> None:
    assert identifiers.is_event_type(name) is allowed


@pytest.mark.parametrize(("pattern", "allowed"), PATTERNS.items())
def test_subscriptions_ask_for_all_for_a_beginning_or_for_one_type(pattern: str, allowed: bool) -> None:
    assert identifiers.is_pattern(pattern) is allowed


@pytest.mark.parametrize(("name", "allowed"), {"default": True, "ACME-7": True, "": False, "a b": False}.items())
def test_tenants_may_come_from_another_system(name: str, allowed: bool) -> None:
    assert identifiers.is_tenant(name) is allowed


def test_a_type_has_one_topic_for_each_pattern_that_matches_it() -> None:
    assert identifiers.topics("a.b.c") == ("*", "a.*", "a.b.*", "a.b.c")
    assert identifiers.topics("shipment") == ("*", "shipment")
    assert "shipment.*" not in identifiers.topics("shipments.expired")
    assert all(map(identifiers.is_pattern, identifiers.topics("a.b.c.d")))


def test_who_asks_for_everything_has_not_asked_for_what_tocsin_tells_of_itself() -> None:
    assert identifiers.topics("tocsin.run.settled") == ("tocsin.*", "tocsin.run.*", "tocsin.run.settled")
    assert identifiers.topics("tocsinery.run")[0] == identifiers.topics("tocsin")[0] == "*"


@given(st.uuids(), st.integers(min_value=0, max_value=2**31 - 1))
def test_a_delivery_id_reads_back(event: UUID, row: int) -> None:
    text = identifiers.delivery_id(event, row)
    assert len(text) == 36
    assert identifiers.parse_delivery_id(text) == (event, row)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dlv_",
        "dlv_" + "v" * 32,
        "dlv_" + "w" * 32,
        "dlv_" + "0" * 31,
        "dlv_" + "0" * 33,
        "DLV_" + "0" * 32,
        "dlv_" + "A" * 32,
        "dlv_" + "0" * 31 + "\n",
        "dlv_" + "0" * 32 + "\n",
        "dlv_" + "٥" * 32,
        str(EVENT),
    ],
)
def test_what_is_no_delivery_id_names_no_delivery(text: str) -> None:
    assert identifiers.parse_delivery_id(text) is None


def test_the_delivery_key_is_the_event_and_the_subscriber() -> None:
    assert identifiers.delivery_key(EVENT, "billing") == "0197f2a0-1111-7222-8333-444455556666:billing"


@pytest.mark.parametrize(
    "text",
    ["", "x", "{" + str(EVENT) + "}", "urn:uuid:" + str(EVENT), EVENT.hex, str(EVENT) + "\n", "0" * 36, "a\x00b"],
)
def test_only_the_canonical_form_is_a_uuid(text: str) -> None:
    assert identifiers.parse_uuid(text) is None


def test_a_uuid_is_read_in_either_case() -> None:
    assert identifiers.parse_uuid(str(EVENT)) == identifiers.parse_uuid(str(EVENT).upper()) == EVENT
