"""What the audit trail tells of a subscriber's fields: all that changed, and nothing that could be a secret."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum

from service.domain import urls
from service.domain.subscriber import Wanted


def changes(before: Wanted, after: Wanted) -> dict[str, object]:
    """What an update changes, as `changed`, `before` and `after`; empty where it changes nothing.

    A URL is told by its origin, because a path may be a credential: `pathChanged` says whether another part of it
    changed. Headers are told by their names: `valuesChanged` names those that were kept with another value.
    """
    old, new = asdict(before), asdict(after)
    differing = [name for name in new if new[name] != old[name]]
    if not differing:
        return {}
    told_before, told_after = ({name: fields[name] for name in differing} for fields in (old, new))
    found: dict[str, object] = {"changed": [_camel(name) for name in differing]}
    found |= {"before": told(told_before), "after": told(told_after)}
    if "url" in differing:
        found["pathChanged"] = _without_origin(before.url) != _without_origin(after.url)
    kept = set(before.headers) & set(after.headers)
    if values := sorted(name for name in kept if before.headers[name] != after.headers[name]):
        found["valuesChanged"] = values
    return found


def told(fields: Mapping[str, object]) -> dict[str, object]:
    """Fields of a subscriber as the API spells them, without what could be a secret."""
    return {_camel(name): _plain(name, value) for name, value in fields.items()}


def _plain(name: str, value: object) -> object:
    if name == "url":
        return urls.origin(str(value))
    if isinstance(value, Mapping):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    return value.value if isinstance(value, Enum) else value


def _without_origin(url: str) -> str:
    """Path and query."""
    return re.sub(r"\A[^:]+://[^/?#]*", "", url)


def _camel(name: str) -> str:
    """A stored column's name as the API spells it."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
