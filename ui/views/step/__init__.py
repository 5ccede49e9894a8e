"""The parts of the traffic view; one is open at a time, and only that one computes."""
