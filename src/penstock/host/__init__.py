"""The hosts: where tasks run. Each host is a separate package and is opened by name."""
