"""Runs vLLM with Suffolk's proposer beside vLLM's own drafters, and without drafts."""
