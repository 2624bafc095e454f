"""The topics of an application, their partitions, and the tasks that read them."""
