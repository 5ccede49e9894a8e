"""Capacity and communication of LLM inference, with the arithmetic behind every number."""
