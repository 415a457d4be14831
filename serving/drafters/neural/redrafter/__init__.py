"""Drafts by a recurrent head on the target's hidden states (ReDrafter, Zhang et al. 2024)."""
