"""Which calculator this is: every link and every export says so."""

VERSION = "1.0.0"
"""Of the package."""

FORMULAS = 2
"""Raised whenever a formula, an engine's rule or a default of an engine is corrected, so that
who opens an older link learns that its numbers may have moved."""
