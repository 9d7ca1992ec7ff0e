"""The exact probability that each of two or three independent Gaussian scores is the largest.

No integral is needed: for two it is one normal distribution function, for three it is the mass that
a bivariate normal has in a quadrant, which Owen's T function gives to the last digits.
"""

from __future__ import annotations

from math import copysign, erfc, inf, sqrt
from typing import TYPE_CHECKING

from scipy.special.cython_special import owens_t

if TYPE_CHECKING:
    from collections.abc import Sequence

_SQRT_HALF = sqrt(0.5)


def best_of_two(means: Sequence[float], sds: Sequence[float]) -> list[float]:
    """Return P (2,) of N(means[i], sds[i]²) to be the larger; at least one sd is above 0."""
    unit = max(sds)
    gap = (means[0] - means[1]) / unit / sqrt((sds[0] / unit) ** 2 + (sds[1] / unit) ** 2)
    first = _normal_cdf(gap)
    return [first, 1.0 - first]


def best_of_three(means: Sequence[float], sds: Sequence[float]) -> list[float]:
    """Return P (3,) of N(means[i], sds[i]²) to be the largest; all sds are above 0.

    With a, b, c in falling order of their means, h_ab = (m_a - m_b) / √(s_a² + s_b²), and

        T_ab = T(h_ab, ((m_a - m_c) s_b² + (m_b - m_c) s_a²) / (q (m_a - m_b))),
        q² = s_a² s_b² + s_a² s_c² + s_b² s_c²,

    P_a = (Φ(h_ab) + Φ(h_ac)) / 2 - T_ab - T_ac. T_ba = -T_ab, so three values serve all arms; the
    middle arm alone has differences of both signs, which takes another 1/2 from it. Nothing
    cancels where one spread is far smaller than another.

    Source:
        Owen (1956), "Tables for computing bivariate normal probabilities", equation 2.1, with the
        correlation s_a² / √((s_a² + s_b²)(s_a² + s_c²)) put in.
    """
    first, second, third = means
    a, b, c = (0, 1, 2) if first >= second else (1, 0, 2)
    if third > means[b]:
        a, b, c = (c, a, b) if third > means[a] else (a, c, b)
    sa, sb, sc = sds[a], sds[b], sds[c]
    unit = max(sa, sb, sc)
    sa, sb, sc = sa / unit, sb / unit, sc / unit
    va, vb, vc = sa * sa, sb * sb, sc * sc
    ab, bc = (means[a] - means[b]) / unit, (means[b] - means[c]) / unit
    ac = (means[a] - means[c]) / unit
    h_ab, h_ac, h_bc = ab / sqrt(va + vb), ac / sqrt(va + vc), bc / sqrt(vb + vc)
    if ac == 0.0:
        ac = bc = 1.0  # all equal: any direction from which they become so gives the same limit
    q = sqrt(va * vb + va * vc + vb * vc)
    t_ab = owens_t(h_ab, _ratio(ac * vb + bc * va, q * ab))
    t_ac = owens_t(h_ac, _ratio(ab * vc - bc * va, q * ac))
    t_bc = owens_t(h_bc, _ratio(-ab * vc - ac * vb, q * bc))
    p_ab, p_ac, p_bc = _normal_cdf(h_ab), _normal_cdf(h_ac), _normal_cdf(h_bc)
    best = 0.5 * (p_ab + p_ac) - t_ab - t_ac
    middle = 0.5 * (p_bc - p_ab) + t_ab - t_bc  # Φ(-h) = 1 - Φ(h)
    last = 0.5 * (2.0 - p_ac - p_bc) + t_ac + t_bc
    best, middle, last = best * (best > 0.0), middle * (middle > 0.0), last * (last > 0.0)
    total = best + middle + last
    found = [0.0, 0.0, 0.0]
    found[a], found[b], found[c] = best / total, middle / total, last / total
    return found


def _normal_cdf(z: float) -> float:
    return 0.5 * erfc(-z * _SQRT_HALF)


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom else copysign(inf, top)
