"""As much of PromQL as the shipped alerts use, evaluated on scrapes; what it does not know it refuses.

Source: the Prometheus documentation, "Querying basics", "Operators" and "Functions". `increase` and `delta` are plain
differences between the first scrape and the last within the range, without Prometheus' extrapolation.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = float | Vector

_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"[^\"]*\")|(?P<range>\[\d+[smhd]\])|(?P<number>\d+(?:\.\d+)?|\+?Inf\b)"
    r"|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<sign>==|!=|>=|<=|=~|!~|[-+*/(){},=><]))"
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_REDUCE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "min": min,
    "sum": sum,
    "avg": lambda values: sum(values) / len(values),
}


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one scrape gave, at this time in seconds since 1970."""

    at: float
    samples: Mapping[str, Vector]

    @classmethod
    def of(cls, at: float, *texts: str) -> "Scrape":
        """The samples of these answers, each under an instance of its own."""
        found: dict[str, Vector] = {}
        for number, text in enumerate(texts):
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    labels = frozenset({**sample.labels, "instance": str(number)}.items())
                    found.setdefault(sample.name, {})[labels] = sample.value
        return cls(at, found)


def true(expression: str, *scrapes: Scrape) -> bool:
    """Whether an alert of this expression would be active at the last of these scrapes."""
    value = evaluate(expression, *scrapes)
    return bool(value) if isinstance(value, dict) else bool({None: value})


def evaluate(expression: str, *scrapes: Scrape) -> Value:
    """What the expression is at the last of these scrapes."""
    reader = _Reader(list(_tokens(expression)), scrapes)
    value = reader.any_of()
    assert reader.left == [], f"not understood: {reader.left} in {expression}"
    return value


def _tokens(expression: str) -> Iterator[str]:
    at = 0
    while at < len(expression.rstrip()):
        token = _TOKEN.match(expression, at)
        assert token, f"not understood: {expression[at:]}"
        at = token.end()
        yield token[0].strip()


@dataclass
class _Reader:
    """Evaluates while it reads; each method is a level of precedence, the loosest first."""

    left: list[str]
    scrapes: Sequence[Scrape]
    _ops: Mapping[str, Callable[[float, float], float]] = field(
        default_factory=lambda: {"-": operator.sub, "+": operator.add, "*": operator.mul, "/": _divided}
    )

    def any_of(self) -> Value:
        value = self.both()
        while self._is("or"):
            other = self.both()
            value = {**_vector(other), **_vector(value)}
        return value

    def both(self) -> Value:
        value = self.compared()
        while self._is("and"):
            on_nothing = self._is("on")
            if on_nothing:
                self._must("(")
                self._must(")")
            other = _vector(self.compared())
            value = {
                labels: n for labels, n in _vector(value).items() if (bool(other) if on_nothing else labels in other)
            }
        return value

    def compared(self) -> Value:
        value = self.sum_of()
        if self.left and self.left[0] in _COMPARE:
            holds = _COMPARE[self.left.pop(0)]
            bound = self.sum_of()
            if isinstance(bound, dict):
                return {at: n for at, n in _vector(value).items() if at in bound and holds(n, bound[at])}
            return {at: n for at, n in _vector(value).items() if holds(n, bound)}
        return value

    def sum_of(self) -> Value:
        value = self.product_of()
        while self.left and self.left[0] in ("-", "+"):
            value = self._joined(self.left.pop(0), value, self.product_of())
        return value

    def product_of(self) -> Value:
        value = self.single()
        while self.left and self.left[0] in ("*", "/"):
            value = self._joined(self.left.pop(0), value, self.single())
        return value

    def _joined(self, sign: str, one: Value, other: Value) -> Value:
        act = self._ops[sign]
        if isinstance(one, dict) and isinstance(other, dict):
            return {at: act(n, other[at]) for at, n in one.items() if at in other}
        if isinstance(one, dict):
            assert isinstance(other, float)
            return {at: act(n, other) for at, n in one.items()}
        return {at: act(one, n) for at, n in other.items()} if isinstance(other, dict) else act(one, other)

    def single(self) -> Value:
        word = self.left.pop(0)
        if word == "(":
            return self._closed(self.any_of())
        if word in ("Inf", "+Inf") or word[0].isdigit():
            return float(word)
        if word in _REDUCE:
            return self._reduced(word)
        return self._called(word) if self._is("(") else self._selected(word, self.scrapes[-1])

    def _called(self, function: str) -> Value:
        if function == "time":
            return self._closed(self.scrapes[-1].at)
        if function == "absent":
            return {} if self._closed(self.any_of()) else {frozenset(): 1.0}
        assert function in ("increase", "delta"), f"not understood: {function}"
        return self._closed(self._change())

    def _reduced(self, how: str) -> Vector:
        kept: tuple[str, ...] = ()
        if self._is("by"):
            kept = tuple(self._names())
        self._must("(")
        groups: dict[Labels, list[float]] = {}
        for labels, n in _vector(self._closed(self.any_of())).items():
            groups.setdefault(frozenset(each for each in labels if each[0] in kept), []).append(n)
        return {labels: _REDUCE[how](values) for labels, values in groups.items()}

    def _change(self) -> Vector:
        name, before = self.left.pop(0), list(self.left)
        last = self._selected(name, self.scrapes[-1])
        span = self.left.pop(0)
        seconds = int(span[1:-2]) * _UNITS[span[-2]]
        inside = [scrape for scrape in self.scrapes if scrape.at >= self.scrapes[-1].at - seconds]
        rest, self.left = self.left, before
        first = self._selected(name, inside[0])
        self.left = rest
        return {at: n - first[at] for at, n in last.items() if at in first}

    def _selected(self, name: str, scrape: Scrape) -> Vector:
        found = scrape.samples.get(name, {})
        for label, sign, wanted in self._matchers():
            match = re.compile(wanted if "~" in sign else re.escape(wanted))
            is_wanted = {at: bool(match.fullmatch(dict(at).get(label, ""))) for at in found}
            found = {at: n for at, n in found.items() if is_wanted[at] is (sign in ("=", "=~"))}
        return found

    def _matchers(self) -> Iterator[tuple[str, str, str]]:
        if not self._is("{"):
            return
        while not self._is("}"):
            label, sign, wanted = (self.left.pop(0) for _ in range(3))
            yield label, sign, wanted.strip('"')
            self._is(",")

    def _names(self) -> Iterator[str]:
        self._must("(")
        while not self._is(")"):
            yield self.left.pop(0)
            self._is(",")

    def _closed(self, value: Value) -> Value:
        self._must(")")
        return value

    def _is(self, word: str) -> bool:
        if self.left and self.left[0] == word:
            self.left.pop(0)
            return True
        return False

    def _must(self, word: str) -> None:
        assert self._is(word), f"{word} is missing before {self.left}"


def _vector(value: Value) -> Vector:
    assert isinstance(value, dict), f"{value} is no vector"
    return value


def _divided(one: float, other: float) -> float:
    return one / other if other else math.nan
