"""Commits, as shared by the hosts: metadata, refused records, purged topics, positions."""
