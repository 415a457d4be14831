"""Hierarchies: levels of drafters that verify each other."""
