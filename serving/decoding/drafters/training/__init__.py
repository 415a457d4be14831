"""Trains draft heads on text for a frozen target (``suffolk train``)."""
