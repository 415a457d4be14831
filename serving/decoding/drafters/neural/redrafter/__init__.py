"""A recurrent head on the target's hidden states as a drafter (ReDrafter, Zhang et al. 2024)."""
