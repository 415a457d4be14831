"""Settings of commands."""
