"""What drafters that are neural networks share."""
