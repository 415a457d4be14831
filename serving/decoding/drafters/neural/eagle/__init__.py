"""Drafts by an EAGLE head, which predicts the target's next hidden state (Li et al. 2024; EAGLE-3 heads too)."""
