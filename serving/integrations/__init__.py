"""Adapters for other inference engines, and the core that they share."""
