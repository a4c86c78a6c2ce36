"""Tocsin: one signed tick in, every subscriber reached, nothing lost, everything provable."""

__version__ = "0.1.0"
