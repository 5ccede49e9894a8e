"""The parts of the Plan view."""
