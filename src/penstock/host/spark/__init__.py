"""The Spark host: a topology as one stateless Spark query with Penstock's own state beside Spark's checkpoint.

Nothing is imported here, so that a worker loads only what it runs. `driver.SparkHost` is the door.
"""
