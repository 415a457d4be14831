"""A smaller language model with the target's tokenizer as a drafter (Leviathan et al. 2023; trees: EAGLE-2, Li et al. 2024)."""
