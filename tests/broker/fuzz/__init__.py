"""A fuzzer of the broker: mutated requests of real clients beside a healthy client whose answers must stay right.

By hand: `python -m tests.broker.fuzz --minutes 10 --seed 1`. A sample runs with the tests (test_fuzz.py). The requests
are recorded (corpus.py) and changed (mutations.py), and healthy.py is the client that must not notice.
"""
