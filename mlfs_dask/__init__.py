"""Multi-label feature selection for data larger than memory.

>>> import mlfs_dask as mlfs
>>> mlfs.ELC.__name__
'ELC'

What is named here is imported when it is first used, so that `import mlfs_dask` costs nothing. Methods need no line
here: their names come from their files (`mlfs_dask.selectors`), and a stub has them for type checkers
(docs/listing.py).
"""

from __future__ import annotations

import importlib
from typing import Any

from mlfs_dask._version import __version__ as __version__

_PLACES = {
    "Dataset": "mlfs_dask.storage.dataset",
    "LabelSpec": "mlfs_dask.readers.base",
    "MLkNN": "mlfs_dask.evaluation.mlknn",
    "annotate": "mlfs_dask.selection.annotate",
    "append": "mlfs_dask.storage.append",
    "cache": "mlfs_dask.engine.cache",
    "compare": "mlfs_dask.evaluation.comparison",
    "convert": "mlfs_dask.storage.convert",
    "evaluate": "mlfs_dask.evaluation.experiment",
    "label_matrix": "mlfs_dask.readers.label_values",
    "methods": "mlfs_dask.selection.estimator",
    "open_dataset": "mlfs_dask.storage.opening",
    "plot": "mlfs_dask.reporting",
    "report": "mlfs_dask.reporting.page",
    "run_batch": "mlfs_dask.batch.running",
}


def _places() -> dict[str, str]:
    """Return the module of every public name."""
    from mlfs_dask.selectors import METHODS

    return _PLACES | {place.partition(":")[2]: place.partition(":")[0] for place in METHODS.values()}


def __getattr__(name: str) -> Any:
    # PEP 562: called only for names that are not here yet.
    if name == "__all__":
        return sorted([*_places(), "__version__"])
    place = _PLACES.get(name) or (None if name.startswith("_") else _places().get(name))
    if place is None:
        from mlfs_dask.errors import closest

        meant = "" if name.startswith("_") else f". {closest(name, list(_places()))}"
        raise AttributeError(f"module 'mlfs_dask' has no attribute {name!r}{meant}", name=name, obj=None)
    value = getattr(importlib.import_module(place), name, None) or importlib.import_module(f"{place}.{name}")
    if name in _PLACES:
        globals()[name] = value
        return value
    from mlfs_dask.selection.estimator import estimator_of

    # Not kept here: the examples of its documentation are those of the method's module, and run there.
    return estimator_of(value)


def __dir__() -> list[str]:
    return sorted([*globals(), *_places()])
