"""What a run of retention deleted, or would have: in a sentence and as a table, in the order of its phases."""

from collections.abc import Mapping
from typing import Any, Final

from service.cli.output import print_table

KINDS: Final = ("deliveries", "payloads", "events", "runs", "replays")
"""In the order in which a run walks them."""

Progress = Mapping[str, Any] | None


def swept(progress: Progress) -> str:
    """The progress of a run as the end of a sentence; empty where its source keeps none, or one of another kind."""
    counts = _counts(progress)
    if not counts:
        return ""
    dry = _is_dry(progress)
    told = [f"{n['eligible' if dry else 'done']:,} of {n['seen']:,} {kind}" for kind, n in counts.items() if n["seen"]]
    if not told:
        return "; dry run: nothing is old enough" if dry else "; nothing is old enough"
    return f"; {'dry run: would delete' if dry else 'deleted'} {', '.join(told)} that are old enough"


def print_swept(progress: Progress) -> None:
    """Print the same as a table; nothing where there is none of it."""
    counts = _counts(progress)
    if counts and progress:
        did = "WOULD BE DELETED" if _is_dry(progress) else "DELETED"
        columns = ("PHASE", "OLD ENOUGH", "NOBODY NEEDS", did)
        gone = "eligible" if _is_dry(progress) else "done"
        rows = [(kind, *(f"{n[name]:,}" for name in ("seen", "eligible", gone))) for kind, n in counts.items()]
        print_table(columns, rows)


def _counts(progress: Progress) -> dict[str, Mapping[str, int]]:
    found = {kind: (progress or {}).get(kind) for kind in KINDS}
    return {kind: n for kind, n in found.items() if isinstance(n, Mapping) and {"seen", "eligible", "done"} <= n.keys()}


def _is_dry(progress: Progress) -> bool:
    return bool(progress and progress.get("dryRun"))
