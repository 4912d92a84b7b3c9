"""The equations of PRoPHET's delivery predictability [RFC 6693 §2.1.2]."""


def update_encounter(
    last: float | None, since_s: float, first: float, most: float, typical_s: float, threshold: float, delta: float
) -> float:
    """[RFC 6693 §2.1.2] Equation 1: P = P_last + (1 - δ - P_last) P_enc.

    A node never met, or whose predictability is below P_first_threshold, begins with P_encounter_first. P_enc grows
    with the interval since the last encounter, up to P_encounter_max after I_typ, so that a link that flaps is not
    counted as many encounters.
    """
    if last is None or last < threshold:
        return first
    weight = most if typical_s <= 0.0 else most * min(1.0, max(0.0, since_s) / typical_s)
    return last + max(0.0, 1.0 - delta - last) * weight


def age(predictability: float, gamma: float, units: float) -> float:
    """[RFC 6693 §2.1.2] Equation 2, aging: P = P_last γ^K, after K time units."""
    return predictability * float(gamma ** max(0.0, units))


def update_transitivity(known: float, to_neighbor: float, of_neighbor: float, beta: float) -> float:
    """[RFC 6693 §2.1.2] Equation 3, transitivity: P(A,C) = max(P(A,C), P(A,B) P(B,C) β)."""
    return max(known, to_neighbor * of_neighbor * beta)
