"""The parent of Python workers: loads common modules once, then forks workers.

It forks as Spark's own daemon does. Spark starts it in place of `pyspark.daemon` in sessions that Penstock creates
(`spark.python.daemon.module`). Without it, each of the dozen processes of a query loads all modules itself. Nothing but
loading happens before a fork: no client, no thread of Penstock's own, no file is opened here. pandas is included
because Spark's own code for `mapInArrow` imports it in every worker, at half a second of CPU each.
"""

from __future__ import annotations

import gc

import pandas  # type: ignore[import-untyped]  # its stubs are not installed
from pyspark.daemon import manager

from penstock.host.spark.worker import sink, source

PRELOADED = (pandas, source, sink)

if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # loaded objects are never garbage; the pages stay shared with the workers
    manager()
