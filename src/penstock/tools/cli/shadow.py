"""`penstock shadow`: compares the outputs and stores of two versions of a program on the same input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from penstock.shadow import BEGINNING, NOW, ShadowOptions, compare
from penstock.tools.cli.clients import ProgramOptions, with_default_servers
from penstock.tools.cli.common import FAILED, AsJson, Verbose, err, option_groups, out, print_json, set_verbose
from penstock.tools.cli.program import LoadedProgram, ProgramError, load_program
from penstock.tools.cli.run import HostOption


@dataclass(frozen=True)
class _Compared:
    """The options of the comparison."""

    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar=f"{BEGINNING}|{NOW}|DIRECTORY",
            help="Start at the first record, at the last commit of the application, or at a savepoint (on Spark).",
        ),
    ] = BEGINNING
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Show at most this many differences of a topic or store.")
    ] = 10
    allow_effects: Annotated[
        bool, typer.Option("--allow-effects", help="Run foreach, peek, print and calls of services, twice.")
    ] = False
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the topics with the outputs until the next comparison.")
    ] = False

    def options(self) -> ShadowOptions:
        """Return the options as those of the library."""
        return ShadowOptions(self.start, self.limit, self.allow_effects, self.keep)


@option_groups
def shadow(
    file: Annotated[Path, typer.Argument(metavar="NEW", help="The changed program.")],
    *,
    of: Annotated[Path, typer.Option("--of", metavar="OLD", help="The present program.")],
    host: HostOption = None,
    compared: _Compared,
    final_values: Annotated[
        bool, typer.Option("--final-values", help="Accept other records if the last value of each key is the same.")
    ] = False,
    as_json: AsJson = False,
    options: ProgramOptions,
    verbose: Verbose = False,
) -> None:
    """Run two versions of a program on the same input and compare what they write; fails if it differs.

    Both run up to the present ends of the input topics. Their outputs go to topics of their own, which are deleted
    afterwards. The application of the present program is not changed.
    """
    if verbose:
        set_verbose(True)
    overrides = options.overrides()
    if host is not None:
        overrides["penstock.host"] = host.value
    old, new = load_program(of), load_program(file)
    _check_modules(old, new)
    programs = [(each.topology, with_default_servers(each.configured(overrides))) for each in (old, new)]
    found = compare(programs[0], programs[1], compared.options())
    if as_json:
        print_json(found.to_dict())
    else:
        for line in found.lines():
            out.print(line, markup=False)
    err.print(found.summary(), markup=False)
    if not (found.has_equal_final_values if final_values else found.is_equal):
        raise typer.Exit(FAILED)


def _check_modules(old: LoadedProgram, new: LoadedProgram) -> None:
    """Raise ProgramError if the programs import different modules of the same name: Python loads only the first."""
    before, after = old.path.resolve().parent, new.path.resolve().parent
    if before == after:
        return
    modules = [Path(path).relative_to(before) for path in old.files if Path(path).resolve() != old.path.resolve()]
    shared = sorted(str(module) for module in modules if (after / module).exists())
    if shared:
        raise ProgramError(
            f"{old.path} imports {', '.join(shared)} of {before}, and {after} has other files of these names. Python "
            "loads one module of a name, so both versions would run the same code. Give the modules of one version "
            "other names, for example those of a package."
        )
