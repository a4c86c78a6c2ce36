"""The results as a table for people and as JSON for machines."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures import FIGURES, RATIOS, Figure, Ratio, Samples

_WIDTH = 120
_WHOLE = 100
"""From here on, a figure is shown without decimals."""
RESULTS = Path(__file__).with_name("results.json")


def verdict(ratio: Ratio, value: float) -> str:
    """Whether the bound is met, and where it is not, by how much."""
    missed = ratio.missed_by(value)
    return f"missed by {missed:.2f} ({missed / ratio.bound:.0%})" if missed else "met"


def figure_rows(figures: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row for each measured figure: label, median, range, unit, samples."""
    for entry in figures.values():
        values = entry["samples"]
        spread = f"{_number(min(values))} – {_number(max(values))}"
        yield entry["label"], _number(entry["median"]), entry["unit"], spread, str(len(values))


def ratio_rows(ratios: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """A row for each ratio: label, value, what was wanted, the verdict."""
    for entry in ratios:
        yield entry["label"], f"{entry['value']:.2f}", entry["wanted"], entry["verdict"]


FIGURE_HEADS = ("figure", "median", "unit", "range", "samples")
RATIO_HEADS = ("ratio", "measured", "wanted", "verdict")


def show(results: dict[str, Any]) -> None:
    """Print both tables."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    for heads, rows in (
        (FIGURE_HEADS, figure_rows(results["figures"])),
        (RATIO_HEADS, ratio_rows(results["ratios"])),
    ):
        table = Table(*heads)
        for row in rows:
            table.add_row(*row)
        console.print(table)


def results_of(samples: Samples, ratios: Sequence[Ratio], figures: dict[str, Figure] | None = None) -> dict[str, Any]:
    """Every sample, the medians, and the ratios that the samples give."""
    known = FIGURES if figures is None else figures
    valued = [(ratio, value) for ratio in ratios if (value := ratio.value(samples)) is not None]
    return {
        "figures": {
            name: {
                "label": figure.label,
                "unit": figure.unit,
                "median": _short(median(samples[name])),
                "samples": [_short(value) for value in samples[name]],
            }
            for name, figure in known.items()
            if samples.get(name)
        },
        "ratios": [
            {
                "label": ratio.label,
                "value": _short(value),
                "wanted": ratio.wanted,
                "met": not ratio.missed_by(value),
                "verdict": verdict(ratio, value),
            }
            for ratio, value in valued
        ],
    }


def renewed(kept: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """What is kept, with what was measured in its place: both sides of a ratio are of one part, and so of one run."""
    fresh = {ratio["label"]: ratio for ratio in measured["ratios"]}
    figures = kept.get("figures", {}) | measured["figures"]
    ratios = {ratio["label"]: ratio for ratio in kept.get("ratios", [])} | fresh
    return kept | {
        "machine": measured["machine"],
        "figures": {name: figures[name] for name in FIGURES if name in figures},
        "ratios": [ratios[ratio.label] for ratio in RATIOS if ratio.label in ratios],
    }


def read(path: Path) -> dict[str, Any]:
    """The results of earlier runs; none where there is no file."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write(path: Path, results: dict[str, Any]) -> None:
    """Keep the results."""
    path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < _WHOLE else f"{value:,.0f}"
