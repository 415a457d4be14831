"""Drafts with a smaller model that has the target's tokenizer (Leviathan et al. 2023; EAGLE-2 for trees, Li et al. 2024)."""
