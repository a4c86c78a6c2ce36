"""`python -m bench`: one run, a table, and bench/results.json."""

import argparse
import logging
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import uvloop

from bench import machine, table
from bench.figures import RATIOS
from bench.parts import claims, crowd, drains, fan_out, hanging, herd, memory, pages, retention, storm, ticks
from bench.processes import Receiver
from bench.sizes import FULL, QUICK, Sizes
from bench.stage import Stage, say
from service import logs
from service.embedded import EmbeddedPostgres

PARTS: Mapping[str, Callable[[Stage, Sizes], Awaitable[None]]] = {
    "drains": drains.measure,
    "fan-out": fan_out.measure,
    "hanging": hanging.measure,
    "retention": retention.measure,
    "ticks": ticks.measure,
    "claims": claims.measure,
    "pages": pages.measure,
    "memory": memory.measure,
    "crowd": crowd.measure,
    "herd": herd.measure,
    "storm": storm.measure,
}


def main() -> None:
    """Measure, print, and keep the results, unless they are those of a smoke."""
    given = _arguments()
    logs.configure("console", level=logging.ERROR)
    described, samples = uvloop.run(_measured(given.only or list(PARTS), QUICK if given.quick else FULL))
    results = {"machine": described} | table.results_of(samples, RATIOS)
    table.show(results)
    say("done")
    if not given.quick:
        kept = table.read(given.output)
        table.write(given.output, table.renewed(kept, results) if given.only else kept | results)


async def _measured(parts: Sequence[str], sizes: Sizes) -> tuple[dict[str, object], dict[str, list[float]]]:
    with (
        tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder,
        EmbeddedPostgres(Path(folder)) as postgres,
    ):
        async with Receiver.running() as receiver:
            stage = Stage(postgres, receiver, Path(folder))
            described = machine.describe(await stage.server_version())
            for part in parts:
                say(f"-- {part}")
                await PARTS[part](stage, sizes)
            return described, stage.samples


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke with small sizes; its figures mean nothing")
    parser.add_argument(
        "--only",
        action="append",
        choices=PARTS,
        help="this part alone, beside what is kept of the others; may be repeated",
    )
    parser.add_argument("--output", type=Path, default=table.RESULTS, help="where the results are kept")
    return parser.parse_args()


if __name__ == "__main__":
    main()
