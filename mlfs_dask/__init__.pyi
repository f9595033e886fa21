"""Names of the package: python docs/listing.py."""

from mlfs_dask._version import __version__ as __version__
from mlfs_dask.batch.running import run_batch as run_batch
from mlfs_dask.engine.cache import cache as cache
from mlfs_dask.evaluation.comparison import compare as compare
from mlfs_dask.evaluation.experiment import evaluate as evaluate
from mlfs_dask.evaluation.mlknn import MLkNN as MLkNN
from mlfs_dask.reporting.page import report as report
from mlfs_dask.selection.estimator import LabelRecoverer, Selector, WeightedSelector
from mlfs_dask.storage.append import append as append
from mlfs_dask.storage.convert import convert as convert
from mlfs_dask.storage.dataset import Dataset as Dataset
from mlfs_dask.storage.dataset import open_dataset as open_dataset
from mlfs_dask.storage.label_values import label_matrix as label_matrix
from typing import Any, Literal

_PLACES: dict[str, str]

def _places() -> dict[str, str]: ...

class AccessMFS(LabelRecoverer, Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        variant: Literal["corrected", "published_code"] = ...,
        lambda_: float = ...,
        theta: float = ...,
        mu: float = ...,
        k_s: int = ...,
        graph: Literal["anchors", "exact", "auto"] = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        k_p: int = ...,
        unknown_labels: Literal["coded", "zeros"] = ...,
        standardise: bool = ...,
        inner_iterations: int = ...,
        solver_tol: float | None = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class AMI(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class AnovaF(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        missing: Literal["error", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class AutoSelector(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        candidates: str | None = ...,
        judge: Literal["both", "linear", "neighbours"] = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class BRCC(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        missing: Literal["error", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class BROR(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        smoothing: float = ...,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class Chi2(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class CMFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        beta: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        n_latent: int | None = ...,
        n_label_sets: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class CSFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        absolute: bool = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class D2F(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class ELAChi2(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class ELC(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        variant: Literal["corrected", "published", "screen"] = ...,
        similarity: Literal["gaussian", "exponential"] = ...,
        lambda_: float | None = ...,
        beta: float | None = ...,
        mask_iter: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class ENM(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class FIMF(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        n_interacting_labels: int = ...,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class FisherScore(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        missing: Literal["error", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class FSCLA(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        beta: float = ...,
        n_shared: int | None = ...,
        gamma: float = ...,
        absolute: bool = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        alpha: float = ...,
        kappa: float = ...,
        n_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class FSSRDM(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        beta: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        tol: float = ...,
        max_iter: int = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class GLFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        variant: Literal["corrected", "published"] = ...,
        alpha: float = ...,
        beta: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        lambda_: float = ...,
        n_groups: int = ...,
        n_label_groups: int = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class GMLC(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        missing: Literal["error", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class GMM(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class GRRO(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        beta: float = ...,
        n_landmarks: int | None = ...,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class JMI(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class LabelEntropy(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        n_promising_labels: int | float = ...,
        order: Literal["descending", "ascending"] = ...,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class LaplacianScore(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        graph: Literal["anchors", "exact", "auto"] = ...,
        n_neighbors: int = ...,
        lambda_: float | None = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class LassoNet(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        n_hidden: int = ...,
        hierarchy: float = ...,
        lambda_start: float = ...,
        path_multiplier: float = ...,
        max_iter: int = ...,
        n_sampled: int = ...,
        batch_size: int = ...,
        max_features: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class LEDA(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        propagation: float = ...,
        ridge: float = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class LFFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        beta: float = ...,
        mu: float = ...,
        delta: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        n_neighbors: int = ...,
        n_latent: int | None = ...,
        tol: float = ...,
        max_iter: int = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class LLSF(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        beta: float = ...,
        absolute: bool = ...,
        correlation: Literal["shifted", "laplacian"] = ...,
        variant: Literal["corrected", "published"] = ...,
        ridge: float = ...,
        tol: float = ...,
        max_iter: int = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class LSMR(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        mu: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        n_neighbors: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MAMFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        n_population: int = ...,
        n_judged: int = ...,
        n_sampled: int = ...,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MDDM(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        constraint: Literal["projection", "subspace"] = ...,
        n_components: int | None = ...,
        mu: float = ...,
        standardise: bool = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MDFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        beta: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        n_neighbors: int = ...,
        label_neighbors: int | None = ...,
        tol: float = ...,
        max_iter: int = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MDMR(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MultiLabelF(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        missing: Literal["error", "mean", "median"] = ...,
        fdr: float = ...,
        resamples: int = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MFSIR(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        beta: float = ...,
        n_latent: int | None = ...,
        n_neighbors: int = ...,
        graph: Literal["anchors", "exact", "auto"] = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        lambda_: float | None = ...,
        step: Literal["blockwise", "fixed"] = ...,
        eta: float | None = ...,
        omega: float = ...,
        weight_steps: int | None = ...,
        label_steps: int = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MICO(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        beta: float = ...,
        n_landmarks: int | None = ...,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        tol: float = ...,
        max_iter: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MIFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        variant: Literal["corrected", "published"] = ...,
        alpha: float = ...,
        beta: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        n_neighbors: int = ...,
        n_latent: int | None = ...,
        lambda_: float = ...,
        step: float = ...,
        tol: float = ...,
        max_iter: int = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MLACO(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        n_ants: int = ...,
        n_cycles: int = ...,
        tour_length: float = ...,
        decay: float = ...,
        variant: Literal["corrected", "published"] = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MLMLFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        random_state: Any = ...,
        variant: Literal["corrected", "published"] = ...,
        alpha: float = ...,
        lambda_: float = ...,
        p: float = ...,
        n_neighbors: int = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        gram_cap: int = ...,
        absolute: bool = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class MRMR(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        criterion: Literal["mid", "miq"] = ...,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class PMU(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class QPMLFS(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float | None = ...,
        n_landmarks: int | None = ...,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        tol: float = ...,
        max_iter: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class ReliefF(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        n_neighbors: int = ...,
        n_sampled: int = ...,
        min_rows: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class RFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        gamma: float = ...,
        variant: Literal["corrected", "published"] = ...,
        absolute: bool = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SCFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        anchor_neighbors: int = ...,
        gamma: float = ...,
        absolute: bool = ...,
        n_anchors: int = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        alpha: float = ...,
        kappa: float = ...,
        n_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SCLS(WeightedSelector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        bins: int = ...,
        binning: Literal["auto", "quantile", "equal-width"] = ...,
        missing: Literal["error", "code", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SFAM(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        anchor_neighbors: int = ...,
        theta: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        n_anchors: int = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        alpha: float = ...,
        kappa: float = ...,
        n_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SFSBLL(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        gamma: float = ...,
        alpha: float = ...,
        kappa: float = ...,
        n_neighbors: int = ...,
        variant: Literal["corrected", "published"] = ...,
        threshold: Literal["prior", "half"] = ...,
        beta: float = ...,
        rho: float = ...,
        absolute: bool = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SFSS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        mu: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        n_neighbors: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SMDRIC(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        lambda_: float = ...,
        alpha: float = ...,
        beta: float = ...,
        absolute: bool = ...,
        mu: float = ...,
        propagation: float = ...,
        n_neighbors: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SMFS(LabelRecoverer, Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float | None = ...,
        beta: float | None = ...,
        n_neighbors: int = ...,
        graph: Literal["anchors", "exact", "auto"] = ...,
        structure: Literal["density", "distance", "reconstruction"] = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        n_trees: int = ...,
        max_samples: int = ...,
        unknown_labels: Literal["auto", "coded", "zeros"] = ...,
        consistency: Literal["observed", "none"] = ...,
        standardise: bool = ...,
        inner_iterations: int | None = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SMILE(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        smoothing: float = ...,
        alpha: float = ...,
        ridge: float = ...,
        n_neighbors: int = ...,
        gram_cap: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SMLFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        alpha: float = ...,
        beta: float = ...,
        gamma: float = ...,
        absolute: bool = ...,
        p: float = ...,
        n_neighbors: int = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class SPFS(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        n_candidates: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

class UAFSBH(Selector):
    def __init__(
        self,
        n_features_to_select: int | float | str | None = ...,
        *,
        gamma: float = ...,
        mu: float = ...,
        n_bits: int = ...,
        absolute: bool = ...,
        n_anchors: int = ...,
        anchor_neighbors: int = ...,
        gram_cap: int = ...,
        tol: float = ...,
        max_iter: int = ...,
        missing: Literal["error", "mean", "median"] = ...,
        random_state: Any = ...,
        unknown: Literal["use", "refuse", "negative"] = ...,
        keep: str | None = ...,
        exclude: str | None = ...,
    ) -> None: ...

