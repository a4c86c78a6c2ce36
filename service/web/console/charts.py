"""Small charts as SVG of our own: stacked bars, a line, and a part of a whole; colours come from the style sheet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from markupsafe import Markup

from service.domain.model import DeliveryState
from service.web.console.words import tone

HEIGHT = 64
"""Of the bars and of the line, in the units of their drawing."""
_STEP, _WIDTH = 10, 8
"""From one bar to the next, and the width of a bar."""
_WHOLE = 100.0

_FROM_DONE_TO_OPEN = (
    DeliveryState.DELIVERED,
    DeliveryState.CANCELLED,
    DeliveryState.EXHAUSTED,
    DeliveryState.REJECTED,
    DeliveryState.AMBIGUOUS,
    DeliveryState.LEASED,
    DeliveryState.PENDING,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One share: what it is, how much, and in which tone (see `words.tone`)."""

    label: str
    value: int
    tone: str


@dataclass(frozen=True, slots=True)
class Stack:
    """One bar: its name, such as a minute, and its shares from the bottom up."""

    label: str
    parts: Sequence[Part]

    @property
    def total(self) -> int:
        """All shares together."""
        return sum(part.value for part in self.parts)


def by_state(counts: Mapping[str, int]) -> list[Part]:
    """Deliveries counted by state, as parts of a whole: what is done first, what is open last."""
    return [Part(state.value, counts[state.value], tone(state.value)) for state in _FROM_DONE_TO_OPEN]


def bars(title: str, stacks: Sequence[Stack]) -> Markup:
    """Stacked bars on one scale; each tells its numbers when it is pointed at. `title` is read out in their place."""
    top = max((stack.total for stack in stacks), default=0) or 1
    drawn = Markup("").join(_bar(place, stack, top) for place, stack in enumerate(stacks))
    width = max(len(stacks) * _STEP - (_STEP - _WIDTH), 1)
    return _drawing("bars", title, width, HEIGHT, drawn)


def line(title: str, values: Sequence[float]) -> Markup:
    """A line through these values on a scale from zero, evenly spaced, with the room below it filled."""
    top = max(values, default=0) or 1
    points = [(place * _STEP, round(HEIGHT - 2 - value / top * (HEIGHT - 4), 1)) for place, value in enumerate(values)]
    path = " ".join(f"{x},{y}" for x, y in points)
    width = max((len(points) - 1) * _STEP, 1)
    area = Markup('<polygon class="area" points="0,{} {} {},{}"/>').format(HEIGHT, path, width, HEIGHT)
    stroke = Markup('<polyline class="stroke" vector-effect="non-scaling-stroke" points="{}"/>').format(path)
    return _drawing("line", title, width, HEIGHT, area + stroke)


def share(parts: Sequence[Part]) -> Markup:
    """The parts of a whole as one bar lying down; its name says each part that is not nothing."""
    told = [part for part in parts if part.value]
    whole = sum(part.value for part in told) or 1
    edges = [0.0, *accumulate(part.value / whole * _WHOLE for part in told)]
    drawn = Markup("").join(
        Markup('<rect class="f-{}" x="{:.2f}" width="{:.2f}" height="8"><title>{}</title></rect>').format(
            part.tone, left, right - left, f"{part.value:,} {part.label}"
        )
        for part, (left, right) in zip(told, pairwise(edges), strict=True)
    )
    title = ", ".join(f"{part.value:,} {part.label}" for part in told) or "nothing yet"
    return _drawing("share", title, int(_WHOLE), 8, drawn)


def _bar(place: int, stack: Stack, top: int) -> Markup:
    told = ", ".join(f"{part.value:,} {part.label}" for part in stack.parts if part.value) or "nothing"
    edges = [0.0, *accumulate(part.value / top * HEIGHT for part in stack.parts)]
    drawn = Markup("").join(
        Markup('<rect class="f-{}" x="{}" y="{:.1f}" width="{}" height="{:.1f}"/>').format(
            part.tone, place * _STEP, HEIGHT - above, _WIDTH, above - below
        )
        for part, (below, above) in zip(stack.parts, pairwise(edges), strict=True)
        if part.value
    )
    back = Markup('<rect class="back" x="{}" width="{}" height="{}"/>').format(place * _STEP, _WIDTH, HEIGHT)
    return Markup("<g><title>{}: {}</title>{}{}</g>").format(stack.label, told, back, drawn)


def _drawing(kind: str, title: str, width: int, height: int, drawn: Markup) -> Markup:
    return Markup(
        '<svg class="chart {}" role="img" aria-label="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(kind, title, width, height, drawn)
