"""One file a published method, and the table by which the command line finds them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from mlfs_dask.errors import UsageError, closest

if TYPE_CHECKING:
    from mlfs_dask.selectors.base import BaseSelector

#: Whether selectors are scikit-learn's estimators. Decided when the first one is imported: a process that only fits
#: stores, as the command line does, sets it to False before and is spared the import of scikit-learn.
as_estimators = True

#: Name on the command line -> module and class. Nothing is imported until it is asked for.
METHODS: dict[str, str] = {
    "access-mfs": "mlfs_dask.selectors.access_mfs:AccessMFS",
    "ami": "mlfs_dask.selectors.pair_criteria:AMI",
    "anova-f": "mlfs_dask.selectors.product_filters:AnovaF",
    "auto": "mlfs_dask.selectors.auto:AutoSelector",
    "br-cc": "mlfs_dask.selectors.product_filters:BRCC",
    "br-or": "mlfs_dask.selectors.count_filters:BROR",
    "chi2": "mlfs_dask.selectors.count_filters:Chi2",
    "d2f": "mlfs_dask.selectors.pair_criteria:D2F",
    "ela-chi": "mlfs_dask.selectors.count_filters:ELAChi2",
    "elc": "mlfs_dask.selectors.elc:ELC",
    "enm": "mlfs_dask.selectors.label_entropy:ENM",
    "fimf": "mlfs_dask.selectors.fimf:FIMF",
    "fisher": "mlfs_dask.selectors.product_filters:FisherScore",
    "gmm": "mlfs_dask.selectors.label_entropy:GMM",
    "grro": "mlfs_dask.selectors.global_information:GRRO",
    "jmi": "mlfs_dask.selectors.pair_criteria:JMI",
    "label-entropy": "mlfs_dask.selectors.label_entropy:LabelEntropy",
    "laplacian": "mlfs_dask.selectors.laplacian:LaplacianScore",
    "mddm": "mlfs_dask.selectors.mddm:MDDM",
    "mdmr": "mlfs_dask.selectors.pair_criteria:MDMR",
    "mfs-f": "mlfs_dask.selectors.product_filters:MultiLabelF",
    "mfsir": "mlfs_dask.selectors.mfsir:MFSIR",
    "mico": "mlfs_dask.selectors.global_information:MICO",
    "mrmr": "mlfs_dask.selectors.pair_criteria:MRMR",
    "pmu": "mlfs_dask.selectors.pair_criteria:PMU",
    "qpmlfs": "mlfs_dask.selectors.global_information:QPMLFS",
    "relieff": "mlfs_dask.selectors.relieff:ReliefF",
    "scls": "mlfs_dask.selectors.pair_criteria:SCLS",
    "smfs": "mlfs_dask.selectors.smfs:SMFS",
    "spfs": "mlfs_dask.selectors.spfs:SPFS",
}


def method_name(name: str) -> str:
    """A method's name as it stands in `METHODS`, however it is written.

    >>> method_name("ELC"), method_name("label_entropy")
    ('elc', 'label-entropy')
    """
    return name.lower().replace("_", "-")


def get_method(name: str) -> type[BaseSelector]:
    """The selector class of a name, in upper or lower case.

    Raises
    ------
    UsageError
        There is no such method; the message names the closest ones.
    """
    try:
        module, _, attribute = METHODS[method_name(name)].partition(":")
    except KeyError:
        raise UsageError(f"there is no method {name!r}. {closest(name, METHODS)} `mlfs methods` lists all.") from None
    selector: type[BaseSelector] = getattr(importlib.import_module(module), attribute)
    return selector
