"""Drafts by the target's own first layers (self-speculation; Zhang et al., Draft & Verify, 2024; LayerSkip, Elhoushi et al. 2024)."""
