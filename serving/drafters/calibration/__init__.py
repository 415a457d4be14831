"""Calibration: maps a source's features of a node to its acceptance probability, learned online and kept in a file."""
