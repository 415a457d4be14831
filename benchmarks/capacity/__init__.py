"""Measurements of serving costs, from which the capacity model computes the number of nodes."""
