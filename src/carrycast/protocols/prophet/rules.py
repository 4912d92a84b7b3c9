"""The equations of PRoPHET's delivery predictability [RFC 6693 §2.1.2]."""


def encounter(
    last: float | None, since_s: float, first: float, most: float, typical_s: float, threshold: float, delta: float
) -> float:
    """[RFC 6693 §2.1.2] Equation 1: P = P_last + (1 - δ - P_last) P_enc.

    A node never met, or all but forgotten (below the threshold), begins with `first`. P_enc grows with the interval
    since the last meeting, up to `most` after `typical_s`: who comes back at once has not been met twice.
    """
    if last is None or last < threshold:
        return first
    weight = most if typical_s <= 0.0 else most * min(1.0, max(0.0, since_s) / typical_s)
    return last + max(0.0, 1.0 - delta - last) * weight


def aged(value: float, gamma: float, units: float) -> float:
    """[RFC 6693 §2.1.2] Equation 2: P = P_last γ^K, after K units of time."""
    return value * float(gamma ** max(0.0, units))


def transitive(known: float, to_neighbor: float, of_neighbor: float, beta: float) -> float:
    """[RFC 6693 §2.1.2] Equation 3: P(A,C) = max(P(A,C), P(A,B) P(B,C) β)."""
    return max(known, to_neighbor * of_neighbor * beta)
