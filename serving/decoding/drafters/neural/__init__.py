"""Neural drafters, and the code that they share."""
