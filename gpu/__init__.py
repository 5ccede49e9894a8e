"""The GPU micro-benchmark: ``python -m gpu``, a process of its own that the page only starts."""
