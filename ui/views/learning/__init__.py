"""The parts of the Learn view."""
