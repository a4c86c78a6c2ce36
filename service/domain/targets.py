"""Which addresses may be called: the guard that keeps webhooks away from private networks and metadata services."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_ALLOW = "it can be allowed with TOCSIN_EGRESS_ALLOW"

_REFUSED_V4: Final = {
    "0.0.0.0/8": "an address of this host (0.0.0.0/8)",
    "10.0.0.0/8": "a private address (10.0.0.0/8)",
    "100.64.0.0/10": "a carrier-grade NAT address (100.64.0.0/10)",
    "127.0.0.0/8": "a loopback address (127.0.0.0/8)",
    "168.63.129.16/32": "a cloud platform's own address (168.63.129.16)",
    "169.254.0.0/16": "a link-local address (169.254.0.0/16)",
    "172.16.0.0/12": "a private address (172.16.0.0/12)",
    "192.0.0.0/24": "a reserved address (192.0.0.0/24)",
    "192.0.2.0/24": "a documentation address (192.0.2.0/24)",
    "192.31.196.0/24": "a reserved address (192.31.196.0/24)",
    "192.52.193.0/24": "a reserved address (192.52.193.0/24)",
    "192.88.99.0/24": "a 6to4 relay address (192.88.99.0/24)",
    "192.168.0.0/16": "a private address (192.168.0.0/16)",
    "192.175.48.0/24": "a reserved address (192.175.48.0/24)",
    "198.18.0.0/15": "a benchmarking address (198.18.0.0/15)",
    "198.51.100.0/24": "a documentation address (198.51.100.0/24)",
    "203.0.113.0/24": "a documentation address (203.0.113.0/24)",
    "224.0.0.0/4": "a multicast address (224.0.0.0/4)",
    "240.0.0.0/4": "a reserved or broadcast address (240.0.0.0/4)",
}
"""IANA's special-purpose registry as an explicit list: `ipaddress.is_global` lets several of these through."""

_REFUSED_V6: Final = {
    "2001::/23": "an IETF protocol address, Teredo among them (2001::/23)",
    "2001:db8::/32": "a documentation address (2001:db8::/32)",
    "2002::/16": "a 6to4 address (2002::/16)",
    "2620:4f:8000::/48": "a reserved address (2620:4f:8000::/48)",
    "3fff::/20": "a documentation address (3fff::/20)",
}
_OUTSIDE_V6: Final = {
    "::1/128": "a loopback address (::1)",
    "64:ff9b::/96": "a NAT64 address (64:ff9b::/96)",
    "64:ff9b:1::/48": "a NAT64 address (64:ff9b:1::/48)",
    "fc00::/7": "a private address (fc00::/7)",
    "fe80::/10": "a link-local address (fe80::/10)",
    "ff00::/8": "a multicast address (ff00::/8)",
    "::/0": "an address outside the public IPv6 space (2000::/3)",
}
"""Names for what lies outside 2000::/3; the last one holds for all of it."""

_PUBLIC_V6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOW_32_BITS: Final = 0xFFFF_FFFF

METADATA: Final = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # AWS, Google Cloud, Azure, Oracle and most others
            "169.254.170.2",  # AWS ECS task credentials
            "169.254.170.23",  # AWS EKS pod credentials
            "168.63.129.16",  # Azure's host agent
            "100.100.100.200",  # Alibaba Cloud
            "192.0.0.192",  # Oracle Cloud, classic
            "fd00:ec2::254",  # AWS over IPv6
            "fd00:ec2::23",  # AWS EKS over IPv6
            "fd20:ce::254",  # Google Cloud over IPv6
        ),
    )
)
"""Where clouds hand out credentials: only an allow entry of exactly that address lets one of them through."""

_TABLE_V4: Final = tuple((IPv4Network(network), name) for network, name in _REFUSED_V4.items())
_TABLE_V6: Final = tuple((IPv6Network(network), name) for network, name in _REFUSED_V6.items())
_TABLE_OUTSIDE_V6: Final = tuple((IPv6Network(network), name) for network, name in _OUTSIDE_V6.items())


def refusal(address: str | Address, allow: Sequence[Network], deny: Sequence[Network]) -> str | None:
    """Why this address may not be called, or None where it may.

    `deny` wins over `allow`, and `allow` over the built-in list. An IPv4 address inside an IPv6 one is judged as
    well. Anything that is not an address is refused. The text names the kind of address, never the address.
    """
    if "%" in str(address):
        return "an address with a zone"
    try:
        judged = ip_address(address)
    except ValueError:
        return "not an IP address"
    if isinstance(judged, IPv6Address) and judged.ipv4_mapped:
        if _within(judged, deny):
            return _denied()
        judged = judged.ipv4_mapped
    if _within(judged, deny):
        return _denied()
    inner = _embedded(judged)
    if inner is not None and (fault := refusal(inner, allow, deny)):
        return f"{_kind(judged)} that leads to {fault}"
    return _unless_allowed(judged, allow)


def _denied() -> str:
    return "an address that TOCSIN_EGRESS_DENY refuses"


def _unless_allowed(address: Address, allow: Sequence[Network]) -> str | None:
    if address in METADATA:
        exact = any(network.num_addresses == 1 and address in network for network in allow)
        return None if exact else "a cloud metadata address; only TOCSIN_EGRESS_ALLOW of exactly this address allows it"
    kind = _kind(address)
    if kind is None or _within(address, allow):
        return None
    return f"{kind}; {_ALLOW}"


def _within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _kind(address: Address) -> str | None:
    """What kind of special address this is, or None for one of the public internet."""
    if isinstance(address, IPv4Address):
        return next((name for network, name in _TABLE_V4 if address in network), None)
    table = _TABLE_V6 if address in _PUBLIC_V6 else _TABLE_OUTSIDE_V6
    return next((name for network, name in table if address in network), None)


def _embedded(address: Address) -> IPv4Address | None:
    """The IPv4 address that a translating IPv6 address stands for (NAT64, RFC 6052; 6to4, RFC 3056)."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & _LOW_32_BITS)
    return address.sixtofour
