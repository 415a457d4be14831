"""Hierarchical speculative decoding: a stack of levels in which each level drafts for the next."""
