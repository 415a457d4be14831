"""What ``suffolk bench live`` measures: insertion, memory and drafts of a live index."""
