"""Calibration maps features of a drafted node to its acceptance probability. The map is learned online, and stored in a file."""
