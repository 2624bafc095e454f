"""The hosts: where tasks run. Each is a package of its own that is opened by name."""
