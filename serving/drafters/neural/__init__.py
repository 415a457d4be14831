"""Neural drafters, and the parts that they share."""
