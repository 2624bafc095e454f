"""Serialization of programs, records and errors for transfer between processes."""
