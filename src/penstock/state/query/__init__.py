"""Interactive queries: what is asked of stores from outside of the tasks, and what is answered; who has the stores is a
host's business."""
