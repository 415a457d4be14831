"""Measures the costs from which capacity is planned."""
