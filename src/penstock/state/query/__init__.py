"""Interactive queries: requests to stores from outside the tasks, and their answers; the host provides the stores."""
