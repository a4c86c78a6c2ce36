"""What an attempt's outcome makes of its delivery: a pure function from (attempt, answer, policy, draw)."""

from typing import Final, NamedTuple

from service.domain.model import Answer, DeliveryState, Outcome, Policy, Settlement

MAYBE_RECEIVED: Final = frozenset({Outcome.TIMEOUT, Outcome.DISCONNECTED, Outcome.IN_DOUBT})
"""The request may have been applied although no answer came: only a receiver that deduplicates may see it again."""

INTERNAL_PAUSE_SECONDS: Final = 5.0
"""How long a delivery waits after a fault of our own, so that a broken worker does not spin on it."""

_FINAL: Final = {
    Outcome.DELIVERED: Settlement(DeliveryState.DELIVERED, counted=True),
    Outcome.SHADOW: Settlement(DeliveryState.DELIVERED, counted=False, reason="shadow"),
    Outcome.REJECTED: Settlement(DeliveryState.REJECTED, counted=True, reason="rejected-by-receiver"),
    Outcome.BLOCKED: Settlement(DeliveryState.REJECTED, counted=True, reason="blocked-by-policy"),
}


class Budget(NamedTuple):
    """What a delivery has left: attempts already counted in this generation, and seconds until its deadline."""

    generation_attempts: int
    seconds_left: float


def backoff(policy: Policy, attempts: int, draw: float) -> float:
    """Seconds to wait before the next attempt: full jitter over min(cap, base·2^attempts).

    `attempts` counts the ones before the attempt that just failed; `draw` is uniform in [0, 1).
    Source: Marc Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
    """
    ceiling = policy.backoff_cap_seconds
    doublings = min(attempts, 62)  # beyond, the product only grows past any cap
    return draw * min(ceiling, policy.backoff_base_seconds * 2.0**doublings)


def settle(answer: Answer, policy: Policy, budget: Budget, draw: float) -> Settlement:
    """Decide what becomes of a delivery after one attempt.

    `draw` is uniform in [0, 1) and makes the jitter; the same input gives the same settlement.
    """
    outcome = answer.outcome
    if final := _FINAL.get(outcome):
        return final
    if outcome in MAYBE_RECEIVED and not policy.idempotent:
        return Settlement(DeliveryState.AMBIGUOUS, counted=True, reason=f"{outcome.value}-may-have-been-applied")
    if outcome is Outcome.INTERRUPTED:
        return Settlement(DeliveryState.PENDING, counted=False, delay=0.0)
    if outcome is Outcome.INTERNAL:
        delay = max(answer.retry_after or 0.0, INTERNAL_PAUSE_SECONDS)
        return Settlement(DeliveryState.PENDING, counted=False, delay=delay, throttle=answer.retry_after)
    return _retry(answer, policy, budget, draw)


def _retry(answer: Answer, policy: Policy, budget: Budget, draw: float) -> Settlement:
    delay = max(backoff(policy, budget.generation_attempts, draw), answer.retry_after or 0.0)
    throttle = delay if answer.outcome is Outcome.THROTTLED else None
    if budget.generation_attempts + 1 >= policy.max_attempts:
        return Settlement(DeliveryState.EXHAUSTED, counted=True, reason="attempts", throttle=throttle)
    if delay >= budget.seconds_left:
        return Settlement(DeliveryState.EXHAUSTED, counted=True, reason="deadline", throttle=throttle)
    return Settlement(DeliveryState.PENDING, counted=True, delay=delay, throttle=throttle)
