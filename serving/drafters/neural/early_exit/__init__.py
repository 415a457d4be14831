"""Drafts by the target's own first layers (Draft & Verify, Zhang et al. 2024; LayerSkip, Elhoushi et al. 2024)."""
