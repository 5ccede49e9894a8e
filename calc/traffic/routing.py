"""How many ranks (or nodes) a token's chosen experts lie on, when routing is uniform.

Every group of experts and every expert in a chosen group is equally likely.
Real routers are not uniform; the figure is an expectation, not a bound.
"""

from __future__ import annotations

from calc.items import Item, Status, formula
from calc.layers import MoeFfn
from calc.units import binomial, chance_untouched, exact_div

UNIFORM = "counting: uniform choice without repetition"


@formula(unit="destinations", source=UNIFORM, status=Status.ESTIMATE)
def distinct_destinations(destinations: int, experts: int, top_k: int) -> float:
    """Expected number of equal parts of the experts in which a token has a chosen one."""
    return destinations * (
        1 - binomial(experts - exact_div(experts, destinations), top_k) / binomial(experts, top_k)
    )


@formula(unit="destinations", source=UNIFORM, status=Status.ESTIMATE)
def distinct_destinations_of_groups(
    destinations: int, experts: int, top_k: int, groups: int, top_k_groups: int
) -> float:
    """The same where a token first chooses groups of experts and then only within them."""
    return destinations * (1 - chance_untouched(destinations, experts, top_k, groups, top_k_groups))


def expected_destinations(key: str, ffn: MoeFfn, destinations: int) -> Item:
    """Distinct destinations of one token, the sender's own included."""
    if ffn.groups == ffn.top_k_groups or ffn.experts % ffn.groups:
        return distinct_destinations.item(
            key, destinations=destinations, experts=ffn.experts, top_k=ffn.top_k
        )
    return distinct_destinations_of_groups.item(
        key,
        destinations=destinations,
        experts=ffn.experts,
        top_k=ffn.top_k,
        groups=ffn.groups,
        top_k_groups=ffn.top_k_groups,
    )
