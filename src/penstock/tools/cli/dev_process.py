"""A process for one program: loads it, reports its effects, and waits for the start.

program_process.py starts it. The program that runs is the one that was checked. Its standard input is a pipe from the
command: the order, then a line that starts the program. When the pipe closes, this process ends; it never outlives the
command. The answer has a pipe of its own, because the program prints to standard output.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import msgspec

from penstock import savepoints
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.open import check_host
from penstock.termination import terminating
from penstock.tools.cli.common import FAILED, report, set_verbose
from penstock.tools.cli.program import LoadedProgram, file_state, load_program, modules_beside
from penstock.tools.cli.program_process import Order, ProgramAnswer
from penstock.tools.cli.run import create_missing_topics, run_program


def main() -> None:
    """Execute the order on standard input; the argument is the file descriptor for the answer."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    set_verbose(order.verbose)
    with terminating():
        with open(int(sys.argv[1]), "wb") as answers:
            path = Path(order.path)
            before = file_state(path)
            try:
                program = load_program(path)
                config = program.configured(order.overrides)
                answer = _answer(program, config, order)
            except (StreamsError, OSError, ValueError) as error:
                notes = vars(error).get("__notes__", ())
                files = {**modules_beside(path, error), str(path): before}
                answer = ProgramAnswer(error="\n".join([str(error), *notes]), files=files)
            answers.write(msgspec.json.encode(answer))
        if not sys.stdin.buffer.readline():
            return
        threading.Thread(target=_end_with_the_command, daemon=True).start()
        try:
            run_program(program, order.overrides)
        except (StreamsError, OSError, RuntimeError, ValueError) as error:
            report(error)
            sys.exit(FAILED)


def _answer(program: LoadedProgram, config: StreamsConfig, order: Order) -> ProgramAnswer:
    check_host(config)
    if order.creates_topics:
        create_missing_topics(program, config)
    # As JSON, like the shape for the comparison.
    shape = msgspec.json.decode(msgspec.json.encode(savepoints.shape_of(program.topology, config)))
    evolution = savepoints.changes(program.topology, config, order.before)
    lines = tuple(evolution.lines()) if evolution.differences else ()
    return ProgramAnswer(lines, bool(evolution.refused), shape, files=program.files)


def _end_with_the_command() -> None:
    while os.read(sys.stdin.fileno(), 1):  # a daemon thread must not hold the lock of a buffer when Python ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
