"""The Spark host: a topology as one stateless Spark query, with Penstock's own state next to Spark's checkpoint.

Nothing is imported here, so that a worker loads only the code it runs. The entry point is `driver.SparkHost`.
"""
