"""Measures the speed-up by predicted texts, by the share of the text that changes."""
