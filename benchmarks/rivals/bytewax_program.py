"""Bytewax: counts keys, or the words of lines. Runs in an environment of its own until its standard input ends.

python bytewax_program.py '<json of a Job>'
"""

import json
import os
import sys
import threading

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main


def main() -> None:
    """Run the job of the first argument."""
    job = json.loads(sys.argv[1])
    flow = Dataflow("counts")
    messages = op.input("source", flow, KafkaSource([job["bootstrap"]], [job["source"]], tail=True))
    if job["program"] == "words":
        words = op.flat_map("split", messages, lambda message: message.value.decode().lower().split())
    else:
        words = op.map("key", messages, lambda message: message.key.decode())
    keyed = op.key_on("by_word", words, lambda word: word)
    counts = op.stateful_map("count", keyed, lambda state, _: ((state or 0) + 1,) * 2)
    results = op.map("result", counts, lambda each: KafkaSinkMessage(each[0].encode(), b"%d" % each[1]))
    op.output("sink", results, KafkaSink([job["bootstrap"]], job["sink"], add_config={"linger.ms": "1"}))
    threading.Thread(target=_end_with_input, daemon=True).start()
    run_main(flow)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
