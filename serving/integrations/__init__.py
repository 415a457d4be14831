"""Adapters for other inference engines, and their shared core."""
