"""What hosts measure and trace of tasks."""
