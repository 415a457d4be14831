"""Compares vLLM with Suffolk's proposer to vLLM's own drafters, and to vLLM without drafts."""
