"""`mlfs compare`: runs compared over data sets, from evaluations."""

from __future__ import annotations

from typing import Any

import click

from mlfs_dask_cli.options import PATH, Command, force_option, option, output_options
from mlfs_dask_cli.output import Output, beside


@click.command(cls=Command, short_help="Compare runs over data sets: tables, ranks, tests, stability.")
@click.argument("evaluations", metavar="EVAL...", type=PATH, nargs=-1, required=True)
@option("-o CMP", "Folder to write; it appears when complete.", "comparison", type=PATH, required=True)
@option("--run LABEL", "Run to compare; may be repeated, in the order of the tables.", "runs", multiple=True)
@option("--control LABEL", "Compare all other runs with this one by Bonferroni-Dunn.")
@option("-k K", "Compare at this number of features, not by the mean over all numbers.", "k", type=int)
@option(
    "--alpha LEVEL",
    "Level of all tests.",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
)
@force_option
@output_options(progress=False)
def compare(
    evaluations: tuple[str, ...], comparison: str, runs: tuple[str, ...], force: bool, output: Output, **options: Any
) -> None:
    """Compare the runs of EVAL folders (or a BATCH folder: all in it) over data sets and write the folder CMP.

    Means with ties by paired t-tests, average ranks, win/tie/loss, Friedman's test, critical differences by
    Nemenyi and Bonferroni-Dunn, stability of the chosen sets, and run time; as tables and figures.
    """
    from mlfs_dask.evaluation.comparison import compare as library
    from mlfs_dask.files.publish import check_place
    from mlfs_dask.files.result_folders import COMPARISON
    from mlfs_dask.reporting.comparison_folder import write_comparison

    check_place(comparison, COMPARISON, force=force)
    found = library(evaluations, runs=runs or None, **options)
    files = write_comparison(comparison, found, force=force)
    summary = {
        "comparison": comparison,
        "datasets": sorted(set(found.means["dataset"])),
        "runs": found.record["runs"],
        "ranks": found.ranks.to_dict("records"),
        "tests": found.tests,
        "notes": found.notes,
        "files": files,
    }
    following = ["mlfs", "report", comparison, "-o", beside(comparison, ".html")]
    output.result(summary, _text(comparison, found), following=following)


def _text(place: str, value: object) -> str:
    from mlfs_dask.evaluation.results import ALL
    from mlfs_dask.reporting.tables import cases, comparison_table, methods_of
    from mlfs_dask_cli.output import table

    blocks = []
    for case in cases(value):
        shown, test = comparison_table(case), case.test
        rows = [
            [cell.text + ("*" if cell.best else " =" if cell.tied else "") for cell in row]
            for row in shown.cells([*shown.rows, *shown.footer])
        ]
        blocks.append(f"{shown.title}\n{table(rows, header=list(shown.columns))}")
        if test["friedman"] is not None:
            friedman = test["friedman"]
            blocks[-1] += (
                f"\nFriedman chi2 {friedman['chi2']:.2f} (p {friedman['chi2_p_value']:.3g}), "
                f"F {friedman['f']:.2f} (p {friedman['f_p_value']:.3g}); critical difference "
                f"{test['nemenyi_difference']:.2f} Nemenyi, {test['bonferroni_dunn_difference']:.2f} Bonferroni-Dunn"
            )
    notes = [f"note: {note}" for note in value.notes]
    legend = "* best, = not different from it" + (
        ", all features not ranked" if ALL in methods_of(value).values() else ""
    )
    return "\n\n".join(blocks) + "\n\n" + "\n".join([*notes, legend, f"written  {place}"])
