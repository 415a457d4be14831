"""Drafts by a smaller language model with the target's tokenizer (Leviathan et al. 2023; trees as in EAGLE-2, Li et al. 2024)."""
