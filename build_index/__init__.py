"""Builds datastores from corpora. Memory is bounded, and an interrupted build can be resumed."""
