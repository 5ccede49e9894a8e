"""Where the ranks of a group sit: which groups stay inside a node and which cross nodes.

Ranks are numbered with tp innermost; the order of the outer groups is the
engine's. A node holds consecutive ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from calc.units import ceil_div

if TYPE_CHECKING:
    from calc.engines import Engine
    from calc.layout import Layout

Group = Literal["tp", "dcp", "pcp", "dp", "ep", "tp_dp", "pp"]
"""``ep``: the tp x pcp x dp ranks that share the experts, ``tp_dp``: the same ranks, each with a
slice of every expert."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A layout on nodes of ``gpus_per_node`` GPUs."""

    layout: Layout
    engine: Engine
    gpus_per_node: int

    def span(self, group: Group) -> int:
        """Consecutive ranks from the first member of a group to the end of its last one's block."""
        layout = self.layout
        if group == "dcp":
            return layout.dcp
        if group == "tp":
            return layout.tp
        sizes = {"pcp": layout.pcp, "dp": layout.dp, "pp": layout.pp}
        if group in ("ep", "tp_dp"):
            group = "dp"
        span = layout.tp
        for inner in self.engine.rank_order:
            span *= sizes[inner]
            if inner == group:
                break
        return span

    def crosses(self, group: Group) -> bool:
        """Whether any group of this kind has members in more than one node."""
        span = self.span(group)
        if self.layout.world_size <= self.gpus_per_node:
            return False
        return self.gpus_per_node % span != 0

    def expert_nodes(self, group: Group) -> int:
        """Nodes with the ranks that share the experts: the fewest that hold equally many."""
        if not self.crosses(group):
            return 1
        members = self.layout.expert_ranks
        fewest = int(ceil_div(members, self.gpus_per_node))
        return next(nodes for nodes in range(fewest, members + 1) if members % nodes == 0)
