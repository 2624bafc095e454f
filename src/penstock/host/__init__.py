"""The hosts, which run tasks. Each host is a separate package and is opened by name."""
