"""What drafts would have brought for texts that were generated before: recordings, and their replay."""
