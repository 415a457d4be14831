"""Measurements of ``suffolk bench live``: insertion, memory and drafts of a live index."""
