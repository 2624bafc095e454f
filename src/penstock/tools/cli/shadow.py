"""`penstock shadow [compare] | switch | abort`: two versions of a program on the same input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from penstock.shadow import (
    BEGINNING,
    NOW,
    ShadowOptions,
    SwitchCondition,
    SwitchOptions,
    VersionComparison,
    abort,
    compare,
    switch,
)
from penstock.shadow.version import Program
from penstock.tools.cli.clients import ProgramOptions, ServersOfProgram, with_default_servers
from penstock.tools.cli.common import (
    FAILED,
    AsJson,
    Settings,
    Verbose,
    err,
    option_groups,
    out,
    print_json,
    set_verbose,
)
from penstock.tools.cli.program import LoadedProgram, ProgramError, load_program
from penstock.tools.cli.run import HostOption

_START: Final = f"{BEGINNING}|{NOW}|DIRECTORY"


class _Shadow(TyperGroup):
    """Compares if no other command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, those of `compare` if they begin with no name of a command."""
        named = not args or args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["compare", *args])


app = typer.Typer(
    cls=_Shadow,
    no_args_is_help=True,
    add_completion=False,
    help="Compare two versions of a program on the same input, or switch a running application to the other.\n\n"
    "`penstock shadow NEW --of OLD` is `penstock shadow compare NEW --of OLD`.",
)


@dataclass(frozen=True)
class _Versions:
    """The programs of both versions."""

    file: Annotated[Path, typer.Argument(metavar="NEW", help="The changed program.")]
    of: Annotated[Path, typer.Option("--of", metavar="OLD", help="The present program.")]
    host: HostOption = None
    servers: ServersOfProgram = None
    config: Settings = None

    def load(self) -> tuple[Program, Program]:
        """Return the present and the changed version."""
        overrides = ProgramOptions(self.servers, self.config).overrides()
        if self.host is not None:
            overrides["penstock.host"] = self.host.value
        old, new = load_program(self.of), load_program(self.file)
        _check_modules(old, new)
        first, second = ((each.topology, with_default_servers(each.configured(overrides))) for each in (old, new))
        return first, second


@dataclass(frozen=True)
class _Compared:
    """The options of a comparison."""

    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Show at most this many differences of a topic or store.")
    ] = 10
    allow_effects: Annotated[
        bool, typer.Option("--allow-effects", help="Run foreach, peek, print and calls of services, twice.")
    ] = False
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the topics with the outputs until the next comparison.")
    ] = False

    def options(self, start: str) -> ShadowOptions:
        """Return the options as those of the library."""
        return ShadowOptions(start, self.limit, self.allow_effects, self.keep)


@app.command("compare")
@option_groups
def compare_versions(
    *,
    versions: _Versions,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar=_START,
            help="Start at the first record, at the last commit of the application, or at a savepoint (on Spark).",
        ),
    ] = BEGINNING,
    compared: _Compared,
    final_values: Annotated[
        bool, typer.Option("--final-values", help="Accept other records if the last value of each key is the same.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run two versions of a program on the same input and compare what they write; fails if it differs.

    Both run up to the present ends of the input topics. Their outputs go to topics of their own, which are deleted
    afterwards. The application of the present program is not changed.
    """
    if verbose:
        set_verbose(True)
    old, new = versions.load()
    found = compare(old, new, compared.options(start))
    if as_json:
        print_json(found.to_dict())
    else:
        _print_comparison(found)
    err.print(found.summary(), markup=False)
    if not (found.has_equal_final_values if final_values else found.is_equal):
        raise typer.Exit(FAILED)


@dataclass(frozen=True)
class _Switched:
    """The options of a switch."""

    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar=_START,
            help="Start the changed program at the first record, at the last commit, or at a savepoint.",
        ),
    ] = NOW
    condition: Annotated[
        SwitchCondition | None, typer.Option("--when", help="Compare both versions first, and switch only then.")
    ] = None
    watched: Annotated[
        int,
        typer.Option("--for", metavar="SECONDS", min=0, help="With --when, process new input this long, then compare."),
    ] = 60
    timeout: Annotated[
        int,
        typer.Option(
            "--timeout", metavar="SECONDS", min=1, help="Wait at most this long for the present program to end."
        ),
    ] = 600

    def options(self, compared: _Compared) -> SwitchOptions:
        """Return the options as those of the library."""
        return SwitchOptions(compared.options(self.start), self.condition, self.watched * 1000, self.timeout * 1000)


@app.command("switch")
@option_groups
def switch_versions(
    *, versions: _Versions, switched: _Switched, compared: _Compared, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Hand a running application on Spark over to a changed program; fails if the present one keeps it.

    The changed program processes the input while the present one runs, with its outputs held back. The present one then
    commits its last epoch and ends, and its successor processes its input up to the same offsets. Start the changed
    program after this command: it continues there, and writes to the real topics.
    """
    if verbose:
        set_verbose(True)
    old, new = versions.load()
    done = switch(old, new, switched.options(compared))
    if as_json:
        found = None if done.comparison is None else done.comparison.to_dict()
        print_json({"switched": done.is_switched, "epoch": done.epoch, "offsets": done.offsets, "comparison": found})
    elif done.comparison is not None:
        _print_comparison(done.comparison)
    if not done.is_switched:  # a comparison that differs fails a script, as `shadow compare` does
        err.print(f"{versions.of} keeps {done.application_id}: the versions differ.", markup=False)
        raise typer.Exit(FAILED)
    err.print(
        f"{done.application_id} belongs to {versions.file} from epoch {done.epoch} on. Start it: penstock run "
        f"{versions.file}",
        markup=False,
    )


@app.command("abort")
@option_groups
def abort_shadow(*, versions: _Versions) -> None:
    """Delete the topics, groups and files of a comparison or switch that was killed.

    The application keeps its state and its program.
    """
    abort(*versions.load())


def _print_comparison(found: VersionComparison) -> None:
    for line in found.lines():
        out.print(line, markup=False)


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
