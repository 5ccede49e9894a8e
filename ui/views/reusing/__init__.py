"""The parts of the Reuse view."""
