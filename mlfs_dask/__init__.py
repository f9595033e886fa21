"""Multi-label feature selection for data larger than memory.

>>> import mlfs_dask as mlfs
>>> mlfs.ELC.__name__
'ELC'

What is named here is imported when it is first used, so that `import mlfs_dask` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mlfs_dask._version import __version__

if TYPE_CHECKING:
    from mlfs_dask.batch.running import run_batch
    from mlfs_dask.engine.cache import cache
    from mlfs_dask.evaluation.comparison import compare
    from mlfs_dask.evaluation.experiment import evaluate
    from mlfs_dask.evaluation.mlknn import MLkNN
    from mlfs_dask.reporting.page import report
    from mlfs_dask.selectors.access_mfs import AccessMFS
    from mlfs_dask.selectors.auto import AutoSelector
    from mlfs_dask.selectors.count_filters import BROR, Chi2, ELAChi2
    from mlfs_dask.selectors.elc import ELC
    from mlfs_dask.selectors.fimf import FIMF
    from mlfs_dask.selectors.global_information import GRRO, MICO, QPMLFS
    from mlfs_dask.selectors.label_entropy import ENM, GMM, LabelEntropy
    from mlfs_dask.selectors.laplacian import LaplacianScore
    from mlfs_dask.selectors.mddm import MDDM
    from mlfs_dask.selectors.mfsir import MFSIR
    from mlfs_dask.selectors.pair_criteria import AMI, D2F, JMI, MDMR, MRMR, PMU, SCLS
    from mlfs_dask.selectors.product_filters import BRCC, AnovaF, FisherScore, MultiLabelF
    from mlfs_dask.selectors.relieff import ReliefF
    from mlfs_dask.selectors.smfs import SMFS
    from mlfs_dask.selectors.spfs import SPFS
    from mlfs_dask.storage.append import append
    from mlfs_dask.storage.convert import convert
    from mlfs_dask.storage.dataset import Dataset, open_dataset
    from mlfs_dask.storage.label_values import label_matrix

_PLACES = {
    "SCLS": "mlfs_dask.selectors.pair_criteria",
    "PMU": "mlfs_dask.selectors.pair_criteria",
    "MRMR": "mlfs_dask.selectors.pair_criteria",
    "MDMR": "mlfs_dask.selectors.pair_criteria",
    "JMI": "mlfs_dask.selectors.pair_criteria",
    "D2F": "mlfs_dask.selectors.pair_criteria",
    "AMI": "mlfs_dask.selectors.pair_criteria",
    "AccessMFS": "mlfs_dask.selectors.access_mfs",
    "AnovaF": "mlfs_dask.selectors.product_filters",
    "BRCC": "mlfs_dask.selectors.product_filters",
    "BROR": "mlfs_dask.selectors.count_filters",
    "Chi2": "mlfs_dask.selectors.count_filters",
    "ELAChi2": "mlfs_dask.selectors.count_filters",
    "AutoSelector": "mlfs_dask.selectors.auto",
    "ELC": "mlfs_dask.selectors.elc",
    "ENM": "mlfs_dask.selectors.label_entropy",
    "FIMF": "mlfs_dask.selectors.fimf",
    "FisherScore": "mlfs_dask.selectors.product_filters",
    "GMM": "mlfs_dask.selectors.label_entropy",
    "MDDM": "mlfs_dask.selectors.mddm",
    "GRRO": "mlfs_dask.selectors.global_information",
    "MICO": "mlfs_dask.selectors.global_information",
    "QPMLFS": "mlfs_dask.selectors.global_information",
    "MFSIR": "mlfs_dask.selectors.mfsir",
    "MLkNN": "mlfs_dask.evaluation.mlknn",
    "Dataset": "mlfs_dask.storage.dataset",
    "LaplacianScore": "mlfs_dask.selectors.laplacian",
    "LabelEntropy": "mlfs_dask.selectors.label_entropy",
    "ReliefF": "mlfs_dask.selectors.relieff",
    "MultiLabelF": "mlfs_dask.selectors.product_filters",
    "SMFS": "mlfs_dask.selectors.smfs",
    "SPFS": "mlfs_dask.selectors.spfs",
    "append": "mlfs_dask.storage.append",
    "cache": "mlfs_dask.engine.cache",
    "compare": "mlfs_dask.evaluation.comparison",
    "run_batch": "mlfs_dask.batch.running",
    "convert": "mlfs_dask.storage.convert",
    "evaluate": "mlfs_dask.evaluation.experiment",
    "label_matrix": "mlfs_dask.storage.label_values",
    "open_dataset": "mlfs_dask.storage.dataset",
    "report": "mlfs_dask.reporting.page",
}

__all__ = [
    "AMI",
    "BRCC",
    "BROR",
    "D2F",
    "ELC",
    "ENM",
    "FIMF",
    "GMM",
    "GRRO",
    "JMI",
    "MDDM",
    "MDMR",
    "MFSIR",
    "MICO",
    "MRMR",
    "PMU",
    "QPMLFS",
    "SCLS",
    "SMFS",
    "SPFS",
    "AccessMFS",
    "AnovaF",
    "AutoSelector",
    "Chi2",
    "Dataset",
    "ELAChi2",
    "FisherScore",
    "LabelEntropy",
    "LaplacianScore",
    "MLkNN",
    "MultiLabelF",
    "ReliefF",
    "__version__",
    "append",
    "cache",
    "compare",
    "convert",
    "evaluate",
    "label_matrix",
    "open_dataset",
    "report",
    "run_batch",
]


def __getattr__(name: str) -> Any:
    # PEP 562: called only for names that are not here yet.
    try:
        place = _PLACES[name]
    except KeyError:
        raise AttributeError(f"module 'mlfs_dask' has no attribute {name!r}") from None
    value = getattr(importlib.import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
