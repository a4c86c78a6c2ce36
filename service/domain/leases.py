"""How much of a lease an attempt may use: one rule for those who accept a timeout and those who start an attempt."""


def longest_attempt(lease_seconds: float) -> float:
    """The longest `timeoutSeconds`, in seconds, that fits a lease: the rest is for starting and for settling."""
    return lease_seconds - min(10.0, lease_seconds / 4)


def shortest_lease(timeout_seconds: float) -> float:
    """The shortest lease, in seconds, that such an attempt fits: `longest_attempt` read the other way round."""
    return min(timeout_seconds / 0.75, timeout_seconds + 10.0)


def latest_end(lease_seconds: float) -> float:
    """How long after its claim, in seconds, an attempt must have ended at the latest, so that it can still be settled.

    It lies halfway between the longest attempt and the lease's end, so that the longest attempt has time to start.
    """
    return lease_seconds - min(5.0, lease_seconds / 8)
