"""The guard of addresses: every special range there is, every disguise, and who may lift which refusal."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.targets import METADATA, Network, refusal


def nets(*texts: str) -> list[Network]:
    """Networks as the settings give them."""
    return [ip_network(text) for text in texts]


EVERYTHING = nets("0.0.0.0/0", "::/0")

PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.216.34", "100.63.255.255", "100.128.0.0"),
    *("126.255.255.255", "128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0"),
    *("172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0"),
    *("223.255.255.255", "2606:4700::1111", "2001:200::", "2001:4860:4860::8888", "2003::1", "2a00:1450::1"),
    *("3ffe:ffff::1", "::ffff:8.8.8.8", "2620:4f:7fff::1"),
]

REFUSED = [
    # IPv4, the first and the last of each range
    *("0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.64.0.1", "100.127.255.255"),  # noqa: S104 -- nothing is bound
    *(
        "127.0.0.0",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.0.0",
        "169.254.169.254",
        "169.254.255.255",
    ),
    *("172.16.0.0", "172.31.255.255", "192.0.0.0", "192.0.0.8", "192.0.0.255", "192.0.2.0", "192.0.2.255"),
    *("192.31.196.1", "192.52.193.1", "192.88.99.1", "192.168.0.0", "192.168.255.255", "192.175.48.1"),
    *("198.18.0.0", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.255"),
    *("224.0.0.0", "224.0.0.1", "239.255.255.255", "240.0.0.0", "255.255.255.254", "255.255.255.255"),
    # IPv6 outside the public space
    *("::", "::1", "::2", "::10.0.0.1", "::127.0.0.1", "::8.8.8.8", "100::1", "1fff:ffff::1", "4000::1", "5f00::1"),
    *("fc00::1", "fd00:ec2::254", "fdff::1", "fe80::1", "febf::1", "fec0::1", "ff02::1", "ff0e::1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b::808:808", "64:ff9b:1::a00:1", "fd20:ce::254"),
    # IPv6 inside it
    *("2001::1", "2001:0:5ef5:79fb::1", "2001:1ff:ffff::1", "2001:db8::1", "2001:10::1", "2001:20::1"),
    *("2002::1", "2002:7f00:1::1", "2002:808:808::1", "2620:4f:8000::1", "3fff::1", "3fff:fff::1"),
    # IPv4 in the clothes of IPv6
    *("::ffff:127.0.0.1", "::ffff:7f00:1", "0:0:0:0:0:ffff:a9fe:a9fe", "::ffff:10.0.0.5", "::ffff:0.0.0.0"),
    *("::ffff:169.254.169.254", "::ffff:100.64.0.1", "::ffff:0:127.0.0.1"),
    # with a zone
    *("fe80::1%eth0", "2606:4700::1111%1"),
]

NONSENSE = ["", " ", "localhost", "127.1", "2130706433", "0x7f.1", "017700000001", "127.0.0.1.", "127.0.0.1/8"]
NONSENSE += ["[::1]", "::1%", "1.2.3.4:80", "٥.٥.٥.٥", "①②⑦.⓪.⓪.①", "\x00", "\ud800", "1.1.1.1\n", "a" * 10_000]


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet_may_be_called(address: str) -> None:
    assert refusal(address, (), ()) is None


@pytest.mark.parametrize("address", REFUSED)
def test_every_special_address_is_refused(address: str) -> None:
    told = refusal(address, (), ())
    assert told
    assert len(told) <= 160


@pytest.mark.parametrize("address", NONSENSE, ids=range(len(NONSENSE)))
def test_what_is_no_address_is_refused_even_if_everything_is_allowed(address: str) -> None:
    assert refusal(address, EVERYTHING, ())


@given(st.ip_addresses(v=4))
def test_whatever_python_holds_for_private_is_refused_as_well(address: IPv4Address) -> None:
    if not address.is_global or address.is_multicast:
        assert refusal(address, (), ())


@given(st.ip_addresses(v=6))
def test_outside_the_public_ipv6_space_only_mapped_public_ipv4_is_let_through(address: IPv6Address) -> None:
    if address not in ip_network("2000::/3") and not address.ipv4_mapped:
        assert refusal(address, (), ())


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_judged_as_what_it_is(address: IPv4Address) -> None:
    assert refusal(f"::ffff:{address}", (), ()) == refusal(address, (), ())


LIFTED = {
    "127.0.0.1": "127.0.0.0/8",
    "10.1.2.3": "10.0.0.0/8",
    "::1": "::1/128",
    "fd00::1": "fd00::/8",
    "::ffff:10.1.2.3": "10.0.0.0/8",
    "100.64.0.1": "100.64.0.0/10",
    "64:ff9b::808:808": "64:ff9b::/96",
    "2002:808:808::1": "2002::/16",
    "169.254.1.1": "169.254.0.0/16",
}


@pytest.mark.parametrize(("address", "network"), LIFTED.items())
def test_an_allowed_network_lifts_the_refusal_and_no_other(address: str, network: str) -> None:
    assert refusal(address, nets(network), ()) is None
    assert refusal(address, nets("203.0.113.0/24"), ())


@pytest.mark.parametrize("address", [*PUBLIC, *LIFTED])
def test_deny_wins_over_everything(address: str) -> None:
    bits = 128 if ":" in address else 32
    assert "TOCSIN_EGRESS_DENY" in str(refusal(address, EVERYTHING, nets(f"{address}/{bits}")))


def test_a_denied_ipv4_network_holds_for_its_mapped_addresses_too() -> None:
    assert refusal("::ffff:8.8.8.8", (), nets("8.8.8.0/24"))


@pytest.mark.parametrize("address", sorted(map(str, METADATA)))
def test_no_range_opens_a_metadata_address_only_an_entry_of_exactly_it(address: str) -> None:
    wide = [*EVERYTHING, *nets("169.254.0.0/16", "169.254.169.254/31", "fd00:ec2::/32", "168.63.129.16/31")]
    assert "metadata" in str(refusal(address, wide, ()))
    assert refusal(address, [ip_network(address)], ()) is None


def test_the_four_that_matter_most_are_known_as_metadata() -> None:
    four = ("169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200")
    assert METADATA.issuperset(map(ip_address, four))


@pytest.mark.parametrize(
    "address", ["64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe"]
)
def test_no_translation_leads_round_the_metadata_rule(address: str) -> None:
    assert "metadata" in str(refusal(address, EVERYTHING, ()))


def test_what_a_translated_address_leads_to_must_be_allowed_too() -> None:
    assert refusal("64:ff9b::7f00:1", nets("64:ff9b::/96"), ())
    assert refusal("64:ff9b::7f00:1", nets("64:ff9b::/96", "127.0.0.0/8"), ()) is None


def test_a_refusal_names_the_kind_of_address_and_keeps_the_address_to_itself() -> None:
    told = str(refusal("10.98.76.54", (), ()))
    assert "a private address" in told
    assert "98.76" not in told
