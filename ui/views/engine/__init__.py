"""Parts of the Capacity view: budget, the engine's blocks or pools, answers, start-up log."""
