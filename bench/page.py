"""Writes the measured part of docs/benchmarks.md from bench/results.json: `python -m bench.page`.

With `--check` it changes nothing and exits with 1 when the page is not what it would write.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
_BEGIN, _END = "<!-- measured: python -m bench.page -->", "<!-- end of what was measured -->"


def page(before: str, results: dict[str, Any]) -> str:
    """The page with everything between the two marks made anew; what people wrote around them stays."""
    head, _, rest = before.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return "\n".join([head + _BEGIN, "", *_measured(results), _END + tail])


def _measured(results: dict[str, Any]) -> Iterator[str]:
    if "figures" in results:
        yield from ("## What was wanted, and what was measured", "")
        yield from _markdown(table.RATIO_HEADS, table.ratio_rows(results["ratios"]))
        yield from ("## The figures", "")
        yield from _markdown(table.FIGURE_HEADS, table.figure_rows(results["figures"]))
        yield from ("## The machine", "")
        yield from _markdown(("", ""), _facts(results["machine"]))
    if "peers" in results:
        peers = results["peers"]
        yield from ("## Peers", "")
        yield from _markdown(table.RATIO_HEADS, table.ratio_rows(peers["ratios"]))
        yield from _markdown(table.FIGURE_HEADS, table.figure_rows(peers["figures"]))
        yield from _markdown(
            ("peer", "version, and the settings that did best: processes × (options)"), _facts(peers["peers"])
        )


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(heads)
    yield _row(["---"] * len(heads))
    yield from map(_row, rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _facts(described: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in described.items():
        shown = ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else str(value)
        yield name.replace("_", " "), shown


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; the exit code."""
    before = PAGE.read_text(encoding="utf-8")
    after = page(before, table.read(table.RESULTS))
    if "--check" not in arguments:
        PAGE.write_text(after, encoding="utf-8")
        return 0
    if before == after:
        return 0
    sys.stderr.write("docs/benchmarks.md is out of date: run `python -m bench.page`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
