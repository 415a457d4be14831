"""Settings of commands. They are declared once, as fields of a dataclass, for parser, file reader, listing and reference."""
