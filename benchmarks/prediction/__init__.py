"""Measures how much predicted texts speed up decoding, for several shares of wrong lines."""
