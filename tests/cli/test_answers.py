"""The words in which a sample receiver is told how to answer."""

import pytest

from service.cli.answers import Kind, Step, parse


def test_each_request_with_a_key_gets_the_next_answer_and_the_last_repeats() -> None:
    script = parse("429:5,timeout,200")
    assert [str(script.answer(number)) for number in (1, 2, 3, 4, 99)] == ["429:5", "hang", "200", "200", "200"]


@pytest.mark.parametrize(
    ("word", "step"),
    [
        ("200", Step(Kind.STATUS, 200)),
        (" 503 ", Step(Kind.STATUS, 503)),
        ("429:0", Step(Kind.STATUS, 429, 0)),
        ("599", Step(Kind.STATUS, 599)),
        ("timeout", Step(Kind.HANG)),
        ("HANG", Step(Kind.HANG)),
        ("disconnect", Step(Kind.DISCONNECT)),
        ("refuse", Step(Kind.REFUSE)),
    ],
)
def test_every_word_of_the_vocabulary_is_read(word: str, step: Step) -> None:
    assert parse(word).steps == (step,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "200,",
        "99",
        "100",
        "600",
        "+200",
        "２００",
        "429:",
        "429:-1",
        "429:1.5",
        "429:99999999",
        "refuse,200",
        "200,refuse",
        "refuse,refuse",
        "sleep",
        ",".join(["200"] * 101),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an answer|stands alone|at most"):
        parse(text)


def test_a_lost_acknowledgement_counts_as_applied_and_an_error_does_not() -> None:
    applied = {
        word: parse(word).steps[0].applies
        for word in ("200", "204", "timeout", "disconnect", "429", "500", "404", "302")
    }
    assert [word for word, did in applied.items() if did] == ["200", "204", "timeout", "disconnect"]
