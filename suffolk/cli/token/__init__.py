"""Tokens of callers, in the access file that 'suffolk serve' and 'suffolk worker' take as --access.

A running server reads the file again within a second of a change."""
