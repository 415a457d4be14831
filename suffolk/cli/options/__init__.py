"""Settings of commands: declared once, as fields of a dataclass; parser, file reader, listing and reference follow."""
