"""The application as its program holds it: its life, and ways to look at it while it runs."""
