"""Calibration maps what a source knows of a node to an acceptance probability. The map is learned online, and stored in a file."""
