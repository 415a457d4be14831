"""Hierarchical speculative decoding: which levels draft, and how many tokens each."""
