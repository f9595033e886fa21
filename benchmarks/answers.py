"""What answers cost, beside a run without them: effect and p of every pair, and scores adjusted for ten covariates; and
beside a run with one label, and plink2.

    python benchmarks/answers.py FOLDER                    # 1 000 000 x 1 000 0/1 features, 100 labels
    python benchmarks/answers.py FOLDER --rows 100000      # a trial

Data is made in FOLDER and stays there. Every run is a process of its own, `mlfs select br-cc` without the cache, with
a thread a core; the least of the processor seconds of --repeats runs counts, which other programs disturb less than the
clock does. plink2 (`--glm allow-no-covars`, two threads, labels as quantitative phenotypes) reads the same rows from a
.pgen; it is left out where it is not installed. Results are printed and written to benchmarks/results/answers.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from synthetic import BATCH_ROWS, SyntheticReader, make_store

D, Q, CARDINALITY, NONZEROS = 1000, 100, 5, 100

#: Covariates, columns of the rows.
C = 10


def measured(command: list[str], repeats: int) -> dict[str, Any]:
    """Least processor and clock seconds, and the largest peak, of a command."""
    cpu, clock, peak = [], [], 0
    for _ in range(repeats):
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{' '.join(command)}:\n{said}")
        clock.append(time.perf_counter() - started)
        cpu.append(usage.ru_utime + usage.ru_stime)
        peak = max(peak, usage.ru_maxrss * 1024)
    return {"cpu_seconds": min(cpu), "seconds": min(clock), "peak_MiB": peak / 2**20}


def select(store: Path, run: Path, *options: str) -> list[str]:
    own = [sys.executable, "-m", "mlfs_dask", "select", "br-cc", str(store), "-k", "100", "-o", str(run)]
    return [*own, "--force", "--quiet", "--cache", "none", *options]


def write_plink(reader: SyntheticReader, prefix: Path) -> None:
    """The rows as PLINK 1 binary files, of which plink2 makes a .pgen: a one is a heterozygous genotype."""
    codes = np.full((reader.d, -(-reader.n // 4)), 0, np.uint8)
    with prefix.with_suffix(".pheno").open("w") as phenotypes, prefix.with_suffix(".fam").open("w") as family:
        phenotypes.write("#IID\t" + "\t".join(f"y{i}" for i in range(reader.q)) + "\n")
        start = 0
        for part in reader.parts(0):
            for batch in reader.read(part, batch_bytes=0):
                genotypes = np.where(batch.X.toarray().T > 0, 2, 3).astype(np.uint8)
                quads = np.pad(genotypes, ((0, 0), (0, -genotypes.shape[1] % 4))).reshape(reader.d, -1, 4)
                packed = (quads << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2, dtype=np.uint8)
                codes[:, start // 4 : start // 4 + packed.shape[1]] = packed
                # 3 and 4: plink2 takes columns of 0, 1 and 2 for cases and controls.
                for row, labels in enumerate(batch.Y.toarray() + 3, start=start):
                    phenotypes.write(f"i{row}\t" + "\t".join(map(str, labels.tolist())) + "\n")
                    family.write(f"0 i{row} 0 0 0 -9\n")
                start += batch.X.shape[0]
    with prefix.with_suffix(".bed").open("wb") as file:
        file.write(bytes([0x6C, 0x1B, 0x01]))
        codes.tofile(file)
    lines = (f"1\tx{j}\t0\t{j + 1}\tA\tC\n" for j in range(reader.d))
    prefix.with_suffix(".bim").write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--without-plink", action="store_true")
    given = parser.parse_args()
    assert given.rows % BATCH_ROWS == 0
    given.folder.mkdir(parents=True, exist_ok=True)
    reader = SyntheticReader(given.rows, D, Q, CARDINALITY, NONZEROS)
    store = make_store(given.folder / "rows", given.rows, D, Q, cardinality=CARDINALITY, nonzeros=NONZEROS, obs=C)
    run = given.folder / "run"
    cases = {
        "without": select(store, run),
        "one label": select(store, run, "--labels", "0"),
        "significant": select(store, run, "--pairs", "significant"),
        "all pairs": select(store, run, "--pairs", "all"),
        "best:10": select(store, run, "--pairs", "best:10"),
        "10 covariates": select(store, run, "--covariates", ",".join(f"c{i}" for i in range(C))),
    }
    rows = {name: measured(command, given.repeats) for name, command in cases.items()}
    if shutil.which("plink2") and not given.without_plink:
        prefix = given.folder / "plink"
        if not prefix.with_suffix(".pgen").exists():
            write_plink(reader, prefix)
            make = ["plink2", "--bfile", str(prefix), "--make-pgen", "--out", str(prefix), "--threads", "2"]
            subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        glm = ["plink2", "--pfile", str(prefix), "--pheno", str(prefix.with_suffix(".pheno")), "--threads", "2"]
        glm += ["--glm", "allow-no-covars", "--out", str(given.folder / "glm")]
        rows["plink2"] = measured(glm, 1)
        rows["all pairs"]["of_plink2"] = rows["all pairs"]["cpu_seconds"] / rows["plink2"]["cpu_seconds"]
    compared = (
        ("without", "one label"),
        ("significant", "without"),
        ("all pairs", "without"),
        ("10 covariates", "without"),
    )
    for name, base in compared:
        rows[name][f"of_{base}"] = rows[name]["cpu_seconds"] / rows[base]["cpu_seconds"]
    description = (
        f"{given.rows:,} rows, {D:,} 0/1 features of which {NONZEROS} a row are 1, {Q} labels: processor seconds, "
        "clock, peak, and ratios of processor seconds"
    )
    measuring.report("answers", measuring.RESULTS, "answers", description, rows, f"--rows {given.rows}")


if __name__ == "__main__":
    main()
