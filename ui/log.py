"""One line for each scenario that was computed, without anything that a visitor typed as text."""

from __future__ import annotations

import logging
import sys

from calc.scenario import Scenario

LOGGER = logging.getLogger("calculator")
if not LOGGER.handlers:  # the script runs anew for every visitor
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False


def computed(scenario: Scenario, milliseconds: float, fault: str = "") -> None:
    """``fault`` is the code of what made it impossible; the model is a preset's id, or custom."""
    layout = scenario.layout
    LOGGER.info(
        "model=%s engine=%s tp=%d dcp=%d dp=%d pp=%d ep=%d ms=%.1f%s",
        scenario.model,
        scenario.engine,
        layout.tp,
        layout.dcp,
        layout.dp,
        layout.pp,
        layout.ep,
        milliseconds,
        f" fault={fault}" if fault else "",
    )
