"""The target's own first layers as a drafter (Draft & Verify, Zhang et al. 2024; LayerSkip, Elhoushi et al. 2024)."""
