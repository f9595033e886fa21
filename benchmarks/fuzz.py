"""Mutated inputs for all that reads what others wrote: files of every format, stores, plans, runs, checkpoints.

    python benchmarks/fuzz.py [--seed N] [--count N] [--targets csv,store ...] [--findings DIR]

Each input is a small valid one of which bytes, numbers or values of JSON were changed. Input i of a target and a seed
is always the same. It is read as `convert` does, and by one of the commands that take it as it is. Right is success, or
one of our own errors (exit code 2, 3 or 4); anything else is a finding: another exception, a crash, more than 20 s of
the processor or 10 minutes in all, or more than 1 GiB. Inputs are read in forked processes whose memory is limited. The
findings are kept in files and printed, and the exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import gzip
import io
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CPU_SECONDS, SECONDS, MEMORY = 20, 600, 2**30
#: Inputs of one process: a fork costs as much as reading some hundred of them.
RUN = 2000
NUMBERS = (0, 1, -1, 2, 127, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**64 - 1, 10**12)
TEXTS = (b"nan", b"inf", b"1e999", b"-0", *(bytes([byte]) for byte in b"?'\",\n\r\t{}:%\\\0\xff"))
VALUES: tuple[Any, ...] = (*NUMBERS, None, True, "", "x", [], {}, [[]], -1.5, 1e308, "NaN", "uint8", [0], [10**12])


@dataclass(frozen=True)
class Target:
    """A kind of input.

    Attributes
    ----------
    make : callable
        Valid inputs: files by name.
    read : callable
        Reads the folder that holds the files of one input.
    mutate : callable, optional
        Changes the files; by default the bytes of one.
    commands : tuple of str
        Commands that take the files; {out} is a folder for what they write.
    """

    make: Callable[[], list[dict[str, bytes]]]
    read: Callable[[Path], object]
    mutate: Callable[[dict[str, bytes], random.Random], dict[str, bytes]] | None = None
    commands: tuple[str, ...] = ()


def opened_by(file: str, options: str = "", *further: str) -> tuple[str, ...]:
    """The commands that open a store, or a file where it lies; `further` are options of a selection."""
    given = f"{{folder}}/{file} {options}"
    select = f"select br-cc {given} -k 1 --missing mean --cache none --force -o {{out}}/run"
    return (
        select,
        f"transform {given} {{out}}/run {{out}}/x.csv --force",
        f"inspect {given}",
        f"plan chi2 {given}",
        f"select label-entropy {given} -k 1 --missing code --cache none --force -o {{out}}/counted",
        f"evaluate {given} br-cc random --missing mean --k-grid 1 --folds 2 --n-neighbors 1 --force -o {{out}}/eval",
        *(f"{select} {each}" for each in further),
    )


def run_command(command: str, folder: Path) -> int:
    """Exit code of `mlfs` in this process."""
    from mlfs_dask_cli.main import mlfs

    arguments = command.format(folder=folder, out=folder.parent / "out").split()
    return int(mlfs.main(arguments, prog_name="mlfs", standalone_mode=False) or 0)


def mutated(content: bytes, chance: random.Random) -> bytes:
    """Bytes of which a few places were changed."""
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(found) + 1)
        size = min(chance.choice((1, 1, 2, 4, 8, 16, 64)), len(found) - at)
        what = chance.randrange(8)
        if what == 0 and size:
            found[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            found[at : at + size] = chance.randbytes(size)
        elif what == 2:
            del found[at : at + size]
        elif what == 3:
            found[at:at] = found[at : at + size] * chance.choice((1, 2, 1000))
        elif what == 4:
            found[at : at + chance.randrange(2)] = chance.choice(TEXTS)
        elif what == 5:
            digits = [i for i, byte in enumerate(found) if 48 <= byte < 58]
            if digits:
                at = chance.choice(digits)
                found[at : at + chance.choice((1, 1, 3))] = str(chance.choice(NUMBERS)).encode()
        elif what == 6:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice(NUMBERS) % 256**width
            found[at : at + width] = number.to_bytes(width, chance.choice(("little", "big")))
        else:
            del found[at : len(found) if chance.random() < 0.3 else at + 1]
    return bytes(found)


def mutate_one(files: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    name = chance.choice(sorted(files))
    return {**files, name: mutated(files[name], chance)}


def mutate_json(value: Any, chance: random.Random) -> Any:
    """A document of which one value, at any depth, was changed."""
    if isinstance(value, dict | list) and value and chance.random() < 0.9:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = chance.choice(keys)
        if chance.random() < 0.05:
            del value[key]
        else:
            value[key] = mutate_json(value[key], chance)
        return value
    if isinstance(value, str) and chance.random() < 0.3:
        return mutated(value.encode(), chance).decode("utf-8", "replace")
    return chance.choice(VALUES)


def mutate_records(files: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    """A record one value of which was changed; now and then the bytes of any file."""
    if chance.random() < 0.3:
        return mutate_one(files, chance)
    name = chance.choice(sorted(name for name in files if name.endswith(".json")))
    return {**files, name: json.dumps(mutate_json(json.loads(files[name]), chance)).encode()}


def mutate_packed(files: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    """A file of gzip what is in which was changed; now and then the compressed bytes."""
    (name, content), *_ = files.items()
    if chance.random() < 0.3:
        return mutate_one(files, chance)
    return {**files, name: gzip.compress(mutated(gzip.decompress(content), chance), 1)}


def mutate_members(files: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    """An .npz one array of which was changed, with sums that fit; now and then the archive itself."""
    (name, content), *_ = files.items()
    if chance.random() < 0.4:
        return mutate_one(files, chance)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    members = mutate_one(members, chance)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, array in members.items():
            archive.writestr(member, array)
    return {**files, name: packed.getvalue()}


def mutate_store(files: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    """A store whose metadata or objects were changed by somebody who can compute digests and checksums."""
    from mlfs_dask.storage.digest import crc32c, new_hash, seal_root

    files = dict(files)
    root = json.loads(files["s.zarr/zarr.json"])
    ours = root["attributes"]["mlfs"]
    if chance.random() < 0.1:
        return mutate_one(files, chance)
    if chance.random() < 0.5:
        mutate_json(chance.choice((ours, root["consolidated_metadata"]["metadata"], root)), chance)
    else:
        name = chance.choice(sorted(name for name in files if "/c/" in name))
        content = files[name]
        if name.split("/")[1] in ("X", "obsm"):
            chunk = mutated(content[:-24], chance)
            chunk += crc32c(chunk).to_bytes(4, "little")
            index = np.array([0, len(chunk)], "<u8").tobytes()
            index = mutated(index, chance) if chance.random() < 0.2 else index
            content = chunk + index + crc32c(index).to_bytes(4, "little")
        else:
            content = mutated(content, chance)
        files[name] = content
    try:
        for name, content in files.items():
            key = name.removeprefix("s.zarr/")
            if key in ours["sizes"]:
                digest = new_hash()
                digest.update(content)
                ours["sizes"][key], ours["digests"][key] = len(content), digest.hexdigest()
        files["s.zarr/zarr.json"] = seal_root(root)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        files["s.zarr/zarr.json"] = json.dumps(root).encode()
    return files


# ---------------------------------------------------------------------------------------------------------
# What is read, and how


def read_source(*names: str, **options: Any) -> Callable[[Path], None]:
    """Read files as `mlfs convert` does, at most some hundred batches of them."""

    def read(folder: Path) -> None:
        from mlfs_dask.formats.detect import open_source
        from mlfs_dask.readers.base import FileSpec, LabelSpec

        given = dict(options)
        keys = {key: value.format(folder=folder) for key, value in given.pop("keys", {}).items()}
        if given.get("xml"):
            given["xml"] = str(folder / given["xml"])
        reader = open_source([str(folder / name) for name in names], FileSpec(labels=LabelSpec(**given), keys=keys))
        batches = 0
        for part in reader.parts(1 << 14)[:20]:
            for batch in reader.read(part, batch_bytes=1 << 18):
                batches += 1
                if batches > 200 or not batch.X.shape[0]:
                    return

    return read


def read_store(folder: Path) -> None:
    """Read a store as a selection does."""
    from mlfs_dask.errors import DoesNotFitError
    from mlfs_dask.storage.opening import open_dataset

    dataset = open_dataset(folder / "s.zarr")
    _ = dataset.feature_names, dataset.label_names, dataset.kinds, dataset.categories, dataset.label_counts
    needed = dataset.rows.profile.buffer_bytes
    if needed > MEMORY // 2:  # refused by the plan
        raise DoesNotFitError("buffers", projected=needed, available=MEMORY // 2, cure="")
    for number, _ in enumerate(dataset.rows.stream(0, dataset.rows.profile.partitions)):
        if number > 200:
            break
    dataset.X.blocks[0].compute(scheduler="synchronous")


def read_plan(folder: Path) -> None:
    from mlfs_dask.batch.spec import read_spec

    read_spec(folder / "plan.yaml")


def read_a_run(folder: Path) -> None:
    from mlfs_dask.selection.runs import read_run

    read_run(str(folder / "run"))


def read_state(folder: Path) -> None:
    from mlfs_dask.engine.checkpoints import Folder

    Folder(str(folder)).read("state.npz", "key")


def read_labels(folder: Path) -> None:
    from mlfs_dask.readers.mulan_xml import read_mulan_labels

    read_mulan_labels(str(folder / "x.xml"))


# ---------------------------------------------------------------------------------------------------------
# Valid inputs

ARFF = b"""@relation 'r: -C 2'
@attribute f1 numeric
@attribute 'f 2' {red, 'dark green', blue}
@attribute f3 {0,1}
@attribute f4 date yyyy
@attribute sky {0,1}
@attribute sea {0,1}
@data
1,red,0,2001,0,1
-2.5e3,'dark green',1,?,1,0 % note
?,blue,1,1999,1,1
"""
SPARSE_ARFF = ARFF[: ARFF.index(b"@attribute f4")] + (
    b"@attribute sky {0,1}\n@attribute sea {0,1}\n@data\n{0 1.5, 1 blue, 4 1}\n{3 1}\n{}\n{0 ?,2 1}\n"
)
CSV = b'f1,"f 2",colour,sky,sea\n1,2.5,red,0,1\n-2e3,nan,"dark, green",1,0\n,3,blue,1,1\n4,5,red,0,0\n'
SVM = b"0,2 1:0.5 3:-1e-3 7:2 # note\n 2:1\n1 1:3 2:nan\n0,3 qid:4 5:0\n"
XMLC = b"4 8 3\n0,2 0:0.5 3:1 7:2\n 2:1\n1 1:3\n0,1,2 5:0.25\n"
MTX = b"%%MatrixMarket matrix coordinate real general\n% note\n4 5 6\n1 1 0.5\n2 3 -1e3\n3 2 4\n4 5 1\n1 2 3\n4 1 7\n"
MTX_ARRAY = b"%%MatrixMarket matrix array integer general\n4 2\n1\n0\n0\n1\n1\n1\n0\n0\n"
XML = b"""<?xml version="1.0"?>
<labels xmlns="http://mulan.sourceforge.net/labels"><label name="sky"><label name="sea"/></label></labels>"""
PLAN = b"""stores: [{path: a.zarr, name: a}, &b {path: b.zarr}]
methods:
  - {method: elc, params: {lambda: [0.1, 1], beta: 2}}
  - {method: mfsir, k: 0.05, seeds: [1, 2]}
k: [10, 20]
seeds: 3
evaluation: {protocol: elc-2020, subjects: [all, random]}
"""


def arrays() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    generator = np.random.default_rng(1)
    X = np.where(generator.random((9, 4)) < 0.5, generator.normal(size=(9, 4)), 0)
    return X, (generator.random((9, 2)) < 0.5).astype(np.int8)


def saved(save: Callable[[Path], object], name: str) -> dict[str, bytes]:
    """What a function writes into a folder under a name."""
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / name)
        return files_in(Path(folder))


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def make_npz() -> list[dict[str, bytes]]:
    from scipy import sparse

    X, Y = arrays()
    csr, csc = sparse.csr_matrix(X), sparse.csc_matrix(X)

    def fields(matrix: Any, kind: bytes) -> dict[str, Any]:
        names = ("data", "indices", "indptr", "shape")
        return {**{f"X_{name}": getattr(matrix, name) for name in names}, "X_format": kind, "Y": Y}

    names = {"feature_names": np.array(list("abcd")), "categories": json.dumps({"0": ["x", "y"]})}
    contents: list[dict[str, Any]] = [
        {"X": X, "Y": Y, **names},
        {"X": np.asfortranarray(X), "Y": Y[:, 0]},
        fields(csr, b"csr"),
        fields(csc, b"csc"),
    ]
    return [saved(functools.partial(np.savez, **each), "x.npz") for each in contents]


def make_mat() -> list[dict[str, bytes]]:
    import scipy.io
    from scipy import sparse

    X, Y = arrays()
    found = [
        saved(functools.partial(scipy.io.savemat, mdict={"X": x, "Y": Y}, do_compression=packed), "x.mat")
        for packed in (False, True)
        for x in (X, sparse.csc_matrix(X))
    ]
    return [*found, saved(save_mat_7, "x.mat")]


def save_mat_7(path: Path) -> None:
    import h5py

    X, Y = arrays()
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in (("X", X.T), ("Y", Y.T)):
            file.create_dataset(name, data=values, chunks=True, compression="gzip")
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def make_h5ad() -> list[dict[str, bytes]]:
    import anndata
    import pandas as pd
    from scipy import sparse

    X, Y = arrays()
    found = []
    for x in (X, sparse.csr_matrix(X), sparse.csc_matrix(X)):
        data = anndata.AnnData(x, obs=pd.DataFrame({"kind": pd.Categorical(list("aabbaabba"))}, list("abcdefghi")))
        data.obsm["labels"] = pd.DataFrame(Y.astype(bool), data.obs_names, ["sky", "sea"])
        found.append(saved(data.write_h5ad, "x.h5ad"))
    return found


def make_tenx() -> list[dict[str, bytes]]:
    import h5py
    from scipy import sparse

    X, _ = arrays()
    matrix = sparse.csr_matrix(X)

    def save(path: Path) -> None:
        with h5py.File(path, "w") as file:
            group = file.create_group("matrix")
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(matrix, name)
            group["shape"] = X.shape[::-1]
            group["barcodes"] = [f"c{i}".encode() for i in range(len(X))]
            group["features/name"] = [b"a", b"b", b"c", b"d"]

    table = "\n".join(["cell,sky", *(f"c{i},{i % 2}" for i in range(len(X)))]).encode()
    return [{**saved(save, "x.h5"), "labels.csv": table}]


def make_tables(feather: bool) -> list[dict[str, bytes]]:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    colours = pa.array(["red", None, "blue", "red"]).dictionary_encode()
    columns = {"f1": [1.5, 2, None, 4], "f2": colours, "f3": ["u", "v", "u", "w"], "sky": [0, 1, 1, 0]}
    table = pa.table({**columns, "sea": [True, False, None, True]})
    if feather:
        write = functools.partial(pyarrow.feather.write_feather, table)
        return [saved(functools.partial(write, compression=kind), "x.feather") for kind in ("uncompressed", "lz4")]
    write = functools.partial(pyarrow.parquet.write_table, table, row_group_size=2)
    kinds = ("none", "snappy", "zstd", "gzip")
    return [saved(functools.partial(write, compression=kind), "x.parquet") for kind in kinds]


def make_zarr() -> list[dict[str, bytes]]:
    import zarr

    X, Y = arrays()

    def save(path: Path, version: int) -> None:
        group = zarr.open_group(path, mode="w", zarr_format=version)
        for name, values in (("X", X), ("Y", Y)):
            group.create_array(name, data=values, chunks=(4, values.shape[1]))

    return [saved(functools.partial(save, version=version), "x.zarr") for version in (2, 3)]


def make_store() -> list[dict[str, bytes]]:
    from scipy import sparse

    from mlfs_dask.storage.convert import convert

    X, Y = arrays()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        np.savez(place / "dense.npz", X=X, Y=Y)
        names = ("data", "indices", "indptr", "shape")
        np.savez(place / "sparse.npz", **{f"X_{name}": getattr(sparse.csr_matrix(X), name) for name in names}, Y=Y)
        for form in ("dense", "sparse"):
            for compressor in ("none", "zstd", "lz4"):
                store = place / form / compressor / "s.zarr"
                store.parent.mkdir(parents=True)
                convert(place / f"{form}.npz", store, storage=form, compressor=compressor, workers=1)
                found.append(files_in(store.parent))
    return found


REPORTS = (
    "transform {folder}/s.zarr {folder}/run {out}/x.csv --force",
    *(f"report {{folder}}/{place} -o {{out}}/x.html --force" for place in ("run", "eval", "compare", "batch")),
    "compare {folder}/eval -o {out}/compare --force",
    "evaluate {folder}/s.zarr {folder}/run {folder}/eval -o {out}/eval --force",
)


def make_records() -> list[dict[str, bytes]]:
    """A store, and folders of everything that is made of it."""
    plan = "stores: [s.zarr]\nmethods: [elc]\nk: 1\nevaluation: {folds: 2, n_neighbors: 1}\n"
    with tempfile.TemporaryDirectory() as folder:
        write_input({**make_store()[0], "plan.yaml": plan.encode()}, Path(folder))
        for command in (
            "select br-cc s.zarr -k 1 --resamples 4 --pairs all -o run",
            "evaluate s.zarr elc random --k-grid 1,2 --folds 3 --n-neighbors 1 -o eval",
            "compare eval -o compare",
            "batch plan.yaml -o batch",
        ):
            subprocess.run(
                [sys.executable, "-m", "mlfs_dask", *command.split()], cwd=folder, check=True, capture_output=True
            )
        return [files_in(Path(folder))]


def make_state() -> list[dict[str, bytes]]:
    from mlfs_dask.engine.checkpoints import Folder

    state = {"W": np.eye(3), "p": np.arange(4)}
    return [saved(lambda path: Folder(str(path.parent)).write(path.name, "key", state, {"iteration": 3}), "state.npz")]


def texts(name: str, *contents: bytes) -> Callable[[], list[dict[str, bytes]]]:
    return lambda: [{name: content} for content in contents]


TARGETS = {
    "arff": Target(texts("x.arff", ARFF, SPARSE_ARFF), read_source("x.arff", count=2)),
    "arff.gz": Target(lambda: [{"x.arff.gz": gzip.compress(ARFF)}], read_source("x.arff.gz", count=2), mutate_packed),
    "csv": Target(texts("x.csv", CSV), read_source("x.csv", columns=("sky", "sea"))),
    "tsv": Target(texts("x.tsv", CSV.replace(b",", b"\t")), read_source("x.tsv", count=2)),
    "svmlight": Target(texts("x.svm", SVM), read_source("x.svm")),
    "xmlc": Target(texts("x.xmlc", XMLC), read_source("x.xmlc")),
    "mtx": Target(lambda: [{"x.mtx": MTX, "y.mtx": MTX_ARRAY}], read_source("x.mtx", "y.mtx")),
    "xml": Target(texts("x.xml", XML), read_labels),
    "npz": Target(make_npz, read_source("x.npz"), mutate_members),
    "mat": Target(make_mat, read_source("x.mat")),
    "parquet": Target(
        lambda: make_tables(feather=False),
        read_source("x.parquet", columns=("sky", "sea")),
        commands=opened_by("x.parquet", "--label-columns sky,sea"),
    ),
    "feather": Target(
        lambda: make_tables(feather=True),
        read_source("x.feather", columns=("sky", "sea")),
        commands=opened_by("x.feather", "--label-columns sky,sea"),
    ),
    "h5ad": Target(
        make_h5ad, read_source("x.h5ad"), commands=opened_by("x.h5ad", "", "--strata kind", "--label-columns kind")
    ),
    "10x": Target(make_tenx, read_source("x.h5", keys={"labels": "{folder}/labels.csv"})),
    "zarr": Target(make_zarr, read_source("x.zarr"), commands=opened_by("x.zarr")),
    "store": Target(make_store, read_store, mutate_store, opened_by("s.zarr")),
    "plan": Target(texts("plan.yaml", PLAN), read_plan),
    "run": Target(make_records, read_a_run, mutate_records, REPORTS),
    "checkpoint": Target(make_state, read_state, mutate_members),
}


# ---------------------------------------------------------------------------------------------------------


def inputs(name: str, corpus: list[dict[str, bytes]], seed: int, first: int, last: int) -> Iterator[dict[str, bytes]]:
    """Inputs first..last-1."""
    mutate = TARGETS[name].mutate or mutate_one
    for number in range(first, last):
        chance = random.Random(f"{name} {seed} {number}")
        yield mutate(chance.choice(corpus), chance)


def write_input(files: dict[str, bytes], folder: Path, before: dict[str, bytes] | None = None) -> None:
    """Put files into a folder, which holds those of `before`: what is the same is not written again."""
    if before is None or before.keys() != files.keys():
        shutil.rmtree(folder, ignore_errors=True)
        before = {}
    for name, content in files.items():
        if before.get(name) != content:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # an earlier reader may have it mapped
            path.write_bytes(content)


def read_inputs(
    name: str, corpus: list[dict[str, bytes]], some: Iterator[dict[str, bytes]], first: int, folder: Path, at: mmap.mmap
) -> None:
    """In a process of its own: read inputs until one of them is a finding."""
    import logging
    import warnings

    from mlfs_dask import runtime
    from mlfs_dask.errors import MlfsError

    logging.disable(logging.CRITICAL)
    runtime.available_memory = lambda root="/": MEMORY // 2  # type: ignore[assignment]
    warnings.simplefilter("ignore")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    timers = {signal.ITIMER_PROF: CPU_SECONDS, signal.ITIMER_REAL: SECONDS}  # whose signals end the process
    target = TARGETS[name]
    write_input(corpus[0], folder)
    for command in target.commands:  # which import, compile, and make a run
        if run_command(command, folder):
            raise SystemError(f"{command}, of the valid input")
    before = None
    for number, files in enumerate(some, first):
        at[:8] = struct.pack("<q", number)
        write_input(files, folder, before)
        before = files
        os.ftruncate(1, 0)
        for timer, seconds in timers.items():
            signal.setitimer(timer, seconds)
        try:
            with contextlib.suppress(MlfsError):
                target.read(folder)
            if target.commands:
                command = target.commands[number % len(target.commands)]
                if (code := run_command(command, folder)) not in (0, 2, 3, 4):
                    raise SystemError(f"exit code {code} of {command}")
        finally:
            for timer in timers:
                signal.setitimer(timer, 0)


def fuzz(name: str, seed: int, count: int, findings: Path) -> int:
    """Number of findings of one target."""
    corpus = TARGETS[name].make()
    found, number, started = 0, 0, time.monotonic()
    at = mmap.mmap(-1, 8)
    scratch = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mlfs-fuzz-", dir=scratch) as space:
        folder, log = Path(space) / "input", Path(space) / "log"
        for content in corpus:  # valid as they are, and what is loaded once is loaded before any fork
            write_input(content, folder)
            TARGETS[name].read(folder)
        gc.freeze()  # a collection in the child would copy every page
        while number < count:
            last = min(number + RUN, count)
            sys.stdout.flush()
            at[:8] = struct.pack("<q", number)
            log.unlink(missing_ok=True)
            process = os.fork()
            if not process:
                with log.open("a") as stream:
                    os.dup2(stream.fileno(), 2)
                    os.dup2(stream.fileno(), 1)
                    try:
                        read_inputs(name, corpus, inputs(name, corpus, seed, number, last), number, folder, at)
                    except BaseException:
                        traceback.print_exc(file=stream)
                        stream.flush()
                        os._exit(1)
                    os._exit(0)
            _, status = os.waitpid(process, 0)
            if status:
                number = struct.unpack("<q", at[:8])[0]
                found += 1
                kept = findings / f"{name}-{seed}-{number}"
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                why = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else log.read_text()[-3000:]
                (kept / "why.txt").write_text(why)
                print(f"{name}, input {number}: {why.strip().rpartition(chr(10))[2]}; {kept}", flush=True)
                last = number + 1
            number = last
    print(f"{name}: {count:,} inputs, {found} findings, {time.monotonic() - started:,.0f} s", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000, help="inputs of each target")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--findings", type=Path, default=Path("/tmp/mlfs-findings"))
    given = parser.parse_args()
    total = [fuzz(name, given.seed, given.count, given.findings) for name in given.targets.split(",")]
    sys.exit(1 if any(total) else 0)
