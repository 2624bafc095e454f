"""The application from the view of its program: its life, and tools to inspect it while it runs."""
