"""Trains draft heads on text, behind a target that stays as it is (``suffolk train``)."""
