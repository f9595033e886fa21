"""Plots in Python show what the attributes of a fit hold, as the report does of the run's folder."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import mlfs_dask as mlfs
from mlfs_dask.errors import UsageError
from mlfs_dask.selection.runs import write_run

D, Q = 12, 4


@pytest.fixture(scope="module")
def selector():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, D)), columns=[f"gene {number}" for number in range(D)])
    Y = (X.to_numpy()[:, :Q] + rng.normal(size=(80, Q)) > 0).astype(int)
    return mlfs.BRCC(5, pairs="all", resamples=20).fit(X, Y)


@pytest.fixture(scope="module")
def folder(selector, tmp_path_factory):
    """The same run in a folder."""
    path, fitted = str(tmp_path_factory.mktemp("plots") / "run"), selector._fitted
    write_run(
        path,
        ranking=selector.ranking_,
        scores=selector.scores_,
        feature_names=selector.feature_names_in_,
        record=selector.report_.to_dict(),
        columns=fitted.columns,
    )
    return path


def axes():
    return Figure().add_subplot()


@pytest.mark.parametrize("source", ["selector", "folder"])
def test_ranking_and_stability(source, request):
    run, frame = request.getfixturevalue(source), request.getfixturevalue("selector").ranking_frame()
    ax = mlfs.plot.ranking(run, axes())
    assert ax.lines[0].get_xdata().tolist() == frame["score"].tolist()
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        f"{rank}. {name}" for rank, name in zip(frame["rank"], frame["feature_name"], strict=True)
    ]
    ax = mlfs.plot.stability(run, axes())
    bars = [segment[:, 0].tolist() for segment in ax.collections[0].get_segments()]
    assert bars == frame[["rank_low", "rank_high"]].to_numpy().tolist()
    assert [text.get_text() for text in ax.texts] == [f"{share:.0%}" for share in frame["selection_frequency"]]


def test_pairs(selector):
    ax = mlfs.plot.pairs(selector, axes())
    table = selector.pairs_.assign(signed=lambda of: -np.log10(of["p_value"]) * np.sign(of["effect"]))
    expected = table.pivot(index="feature_index", columns="label_index", values="signed").loc[selector.ranking_]
    np.testing.assert_allclose(ax.collections[0].get_array(), expected.to_numpy(), rtol=1e-12)
    with pytest.raises(UsageError, match="no table of pairs\n  cure: fit with pairs="):
        mlfs.plot.pairs(mlfs.Chi2(1).fit([[0], [1]], [0, 1]))
    with pytest.raises(UsageError, match="no resamples\n  cure: fit with resamples="):
        mlfs.plot.stability(mlfs.Chi2(1).fit([[0], [1]], [0, 1]))


def test_frames_of_a_fit(selector, folder):
    """`ranking_frame` is `ranking.csv`; `ranks_` inverts `ranking_`."""
    frame = selector.ranking_frame()
    written = pd.read_csv(f"{folder}/ranking.csv", float_precision="round_trip")
    assert list(frame)[:4] == list(written)[:4] == ["rank", "feature_index", "feature_name", "score"]
    pd.testing.assert_frame_equal(frame[list(written)], written, check_dtype=False, rtol=0, atol=0)
    assert (selector.ranks_[selector.ranking_] == np.arange(1, D + 1)).all()
    assert len(selector.pairs_) == D * Q
    assert not hasattr(mlfs.BRCC(5), "ranks_")
    assert not hasattr(mlfs.BRCC(5), "pairs_")
