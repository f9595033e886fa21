"""A group whose sub-commands are the selectors, their options made from the selectors' own parameters."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from mlfs_dask_cli.main import refuse_unknown
from mlfs_dask_cli.options import put_into_section, with_facts, write_options

if TYPE_CHECKING:
    from mlfs_dask.selectors.parameters import Parameter

#: Parameters that a shared option stands for: --seed.
SEED_PARAMETER = "random_state"


class SelectorValue(click.ParamType):
    """A value of a parameter of one selector or more, read as the annotation of each says.

    It is converted to the value for every selector, by the selector's name.
    """

    def __init__(self, options: dict[str, Parameter]) -> None:
        self.name = "|".join(dict.fromkeys(option.metavar for option in options.values()))
        self._options = options

    @property
    def methods(self) -> Collection[str]:
        """Names of the methods that have the parameter."""
        return self._options.keys()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        from mlfs_dask.errors import UsageError

        parsed = {}
        for method, option in self._options.items():
            try:
                parsed[method] = option.parse(str(value))
            except UsageError as error:
                raise click.UsageError(f"{error} ({method})" if len(self._options) > 1 else str(error), ctx) from error
        return parsed

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        choices = dict.fromkeys(choice for option in self._options.values() for choice in option.choices)
        return [CompletionItem(choice) for choice in choices if choice.startswith(incomplete)]


class MethodGroup(click.Group):
    """`mlfs NAME METHOD STORE ...`: METHOD is looked up among the selectors when it is given.

    Parameters
    ----------
    make_command : callable
        ``make_command(selectors)`` gives the command for selector classes, or for none, what all have. It is called
        with `methods`, the parameters that were given for every method, by the method's name.
    several : bool
        Whether METHOD may be several, with commas between.
    """

    def __init__(
        self, *args: Any, make_command: Callable[[Sequence[Any]], click.Command], several: bool = False, **kwargs: Any
    ) -> None:
        metavar = "METHOD[,METHOD...] STORE [OPTIONS]" if several else "METHOD STORE [OPTIONS]"
        super().__init__(*args, subcommand_metavar=metavar, options_metavar=None, **kwargs)
        self._make_command = make_command
        self._several = several

    def list_commands(self, ctx: click.Context) -> list[str]:
        from mlfs_dask.selectors import METHODS

        return sorted(METHODS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        from mlfs_dask.selection.question import parameters_of
        from mlfs_dask.selectors import METHODS, get_method

        names = self._names(name)
        if not names or not METHODS.keys() >= set(names):
            return None
        selectors = {each: get_method(each) for each in names}
        command = self._make_command(list(selectors.values()))
        options: dict[str, dict[str, Parameter]] = {}
        for method, selector in selectors.items():
            for option in parameters_of(selector):
                if option.name != SEED_PARAMETER:
                    options.setdefault(option.name, {})[method] = option
        own = [_as_click(each, options) for each in options.values() if not _is_common(each)]
        common = [_as_click(each, options) for each in options.values() if _is_common(each)]
        put_into_section(own, f"Options of {', '.join(names)}")
        put_into_section(common, "Options of every method")
        command.params = [
            *[p for p in command.params if isinstance(p, click.Argument)],
            *own,
            *common,
            *[p for p in command.params if not isinstance(p, click.Argument)],
        ]
        inner = command.callback
        assert inner is not None

        def call(**kwargs: Any) -> Any:
            methods: dict[str, dict[str, Any]] = {method: {} for method in selectors}
            for option in options:
                for method, value in (kwargs.pop(option) or {}).items():
                    methods[method][option] = value
            return inner(methods=methods, **kwargs)

        command.callback = call
        described = [f"{selector.title}: {selector.paper}" for selector in selectors.values()]
        command.help = "\n\n".join([command.help or "", *described])
        return command

    def _names(self, text: str) -> list[str]:
        from mlfs_dask.selectors import method_name

        return [method_name(name) for name in (text.split(",") if self._several else [text])]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            raise click.UsageError("give a METHOD and a STORE; `mlfs methods` lists the methods.", ctx)
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names and not ctx.resilient_parsing:
            raise click.UsageError(f"the method comes before its options, and {args[0]!r} came first.", ctx)
        known = self.list_commands(ctx)
        if len(args) > 1 and not set(self._names(args[0])) & set(known) and set(self._names(args[1])) <= set(known):
            args = [args[1], args[0], *args[2:]]  # the store first, as `mlfs evaluate` has it
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if "," in args[0] and not self._several:
            raise click.UsageError(f"{self.name} takes one method; got {args[0]!r}. Give it once for each.", ctx)
        names = self._names(args[0])
        for name in names:
            refuse_unknown(ctx, name, self.list_commands(ctx), "method")
            if names.count(name) > 1:
                raise click.UsageError(f"{args[0]!r} names {name} twice.", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return names alone: to look at the commands as well would import all of them."""
        before, comma, last = incomplete.rpartition(",") if self._several else ("", "", incomplete)
        names = self._names(before)
        return [
            CompletionItem(before + comma + name)
            for name in self.list_commands(ctx)
            if name.startswith(last.lower()) and name not in names
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Names alone: what a method is stands in its class, and importing all of them takes seconds.
        with formatter.section("Methods"):
            names, indent = ", ".join(self.list_commands(ctx)), " " * formatter.current_indent
            lines = textwrap.wrap(names, formatter.width - len(indent), break_on_hyphens=False)
            formatter.write(textwrap.indent("\n".join(lines), indent) + "\n\n")
            formatter.write_text(
                f"`mlfs methods` describes them; `{ctx.command_path} METHOD --help` shows a method's own options, and "
                "those on features, labels and rows that every method has."
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the methods, and then the options of the command for any method."""
        self.format_commands(ctx, formatter)
        write_options(self._make_command([]), ctx, formatter)


def options_without_effect(methods: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each given option of the running command that some of its methods do not have."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        if isinstance(option.type, SelectorValue) and option.name is not None:
            others = [method for method in methods if method not in option.type.methods]
            if others and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
                yield f"{option.opts[0]} has no effect on {', '.join(others)}, which has no such option"


def _is_common(options: dict[str, Parameter]) -> bool:
    """Return True if every method has the parameter; such options come last, together."""
    from mlfs_dask.selection.question import COMMON

    return next(iter(options.values())) in COMMON


def _as_click(options: dict[str, Parameter], parameters: Mapping[str, Mapping[str, Parameter]]) -> click.Option:
    """Return the click option of a parameter that one or several selectors have, by their names, among all
    `parameters`.
    """
    first = next(iter(options.values()))
    kind = SelectorValue(options)
    same = all(option.default == first.default for option in options.values())
    default = first.default if same else None  # each selector then has its own
    shown = f"default: {str(default).lower() if isinstance(default, bool) else default}"
    facts = [shown] * (default is not None) + [first.range] * all(o.range == first.range for o in options.values())
    help_text = with_facts(_with_flags(first.help, parameters), *facts)
    return click.Option([first.flag, first.name], type=kind, default=default, help=help_text, metavar=kind.name)


def _with_flags(text: str, parameters: Mapping[str, Mapping[str, Parameter]]) -> str:
    """Return a text with the parameters that it names in backticks spelt as options."""

    def spell(found: re.Match[str]) -> str:
        named = parameters.get(found[1])
        return next(iter(named.values())).flag if named else found[0]

    return re.sub(r"`(\w+)`", spell, text)
