"""When applications restart, share processor time, and report progress."""
