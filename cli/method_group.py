"""A group whose sub-commands are the selectors, their options made from the selectors' own parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mlfs_dask_cli.main import resolve_or_suggest

if TYPE_CHECKING:
    from mlfs_dask.selectors.options import Option

#: Parameters that a shared option stands for: --seed.
SEED_PARAMETER = "random_state"


class SelectorValue(click.ParamType):
    """A value of a selector's parameter, read as its annotation says."""

    def __init__(self, option: Option) -> None:
        self.name = option.type_text
        self._option = option

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        from mlfs_dask.errors import UsageError

        try:
            return self._option.parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class MethodGroup(click.Group):
    """`mlfs NAME METHOD STORE ...`: METHOD is looked up among the selectors when it is given.

    `make_command(method)` gives the command that is the same for every method; it is called with the method's
    name and the dict of its parameters as `method` and `params`.
    """

    def __init__(self, *args: Any, make_command: Callable[[str], click.Command], **kwargs: Any) -> None:
        super().__init__(*args, subcommand_metavar="METHOD STORE [OPTIONS]", **kwargs)
        self._make_command = make_command

    def list_commands(self, ctx: click.Context) -> list[str]:
        from mlfs_dask.selectors import METHODS

        return sorted(METHODS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        from mlfs_dask.selectors import METHODS

        if name not in METHODS:
            return None
        from mlfs_dask.selectors import get_method
        from mlfs_dask.selectors.options import selector_options

        selector = get_method(name)
        command = self._make_command(name)
        own = [option for option in selector_options(selector) if option.name != SEED_PARAMETER]
        command.params = [
            *[p for p in command.params if isinstance(p, click.Argument)],
            *[_as_click(option) for option in own],
            *[p for p in command.params if not isinstance(p, click.Argument)],
        ]
        inner = command.callback
        assert inner is not None

        def call(**kwargs: Any) -> Any:
            params = {option.name: kwargs.pop(option.name) for option in own}
            return inner(method=name, params=params, **kwargs)

        command.callback = call
        command.help = f"{command.help}\n\n{selector.title}: {selector.paper}"
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            raise click.UsageError(f"the method comes before its options, and {args[0]!r} came first.", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return resolve_or_suggest(super().resolve_command, ctx, args, self.list_commands(ctx), "method")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Names alone: what a method is stands in its class, and importing all of them takes seconds.
        with formatter.section("Methods"):
            formatter.write_text(", ".join(self.list_commands(ctx)))
            formatter.write_text(
                f"`mlfs methods` describes them; `{ctx.command_path} METHOD --help` shows a method's options."
            )


def _as_click(option: Option) -> click.Option:
    return click.Option(
        [option.flag, option.name],
        type=SelectorValue(option),
        default=option.default,
        show_default=option.default is not None,
        help=option.help,
        metavar=option.type_text.upper().replace(" ", ""),
    )


def make_selector(
    method: str, params: dict[str, Any], *, k: int | float | str | None, seed: int | None
) -> tuple[Any, bool]:
    """The configured selector, and whether `seed` has a use in it."""
    from mlfs_dask.selectors import get_method

    selector = get_method(method)
    if SEED_PARAMETER in selector._get_param_names() and seed is not None:
        params = {**params, SEED_PARAMETER: seed}
    configured = selector(n_features_to_select=k, **params)
    return configured, configured.is_random
