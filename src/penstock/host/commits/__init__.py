"""What hosts share of a commit: its metadata, refused records, purged topics, positions."""
