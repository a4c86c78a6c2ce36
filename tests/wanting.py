"""Subscribers as tests want them."""

from dataclasses import replace
from typing import Any

from service.domain.subscriber import Wanted


def wanted(slug: str = "acme", **changes: Any) -> Wanted:
    """A subscriber that wants every event of the default tenant."""
    plain = Wanted(id=slug, url=f"https://{slug.replace('_', '-')}.example/hook", event_types=("*",))
    return replace(plain, **changes)
