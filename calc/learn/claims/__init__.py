"""Claims of articles, blogs and common talk, each with the right value and a verdict."""

from __future__ import annotations

from calc.learn.claims import movement, popular, storage, striping
from calc.learn.claims.base import Claim as Claim
from calc.learn.claims.base import Right as Right
from calc.learn.claims.base import Source as Source
from calc.learn.claims.base import Verdict as Verdict

CLAIMS: tuple[Claim, ...] = (
    *storage.CLAIMS,
    *movement.CLAIMS,
    *striping.CLAIMS,
    *popular.CLAIMS,
)
"""All of them, in the order of their sources."""


def name(claim: Claim) -> str:
    """The id of a claim among those of all sources."""
    return f"{claim.source.value}_{claim.id}"
