"""Commands whose n-th call to the file system fails, each in a fork of one process that has everything imported.

Run as a program, with `failing_calls.c` loaded before it (LD_PRELOAD), it makes small data in the folder that it is
given, and reads cases from standard input: a line of JSON each (`Case`). It answers each with a line of JSON: the
number of calls, and a list of what was wrong.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import gc
import hashlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import matplotlib.figure
import numpy as np
from click.testing import CliRunner, Result

from mlfs_dask_cli.main import mlfs

KINDS = ("open", "create", "read", "write", "sync", "rename", "unlink", "mkdir")
# What a disk cannot read of a store is damaged.
EXIT_CODES = {errno.ENOSPC: {4}, errno.EIO: {1, 3}, errno.EACCES: {1}}
SECONDS = 120
#: Of a file that is another one whenever it is made.
TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|seconds")
#: Of a name that is drawn anew by each process.
DRAWN = re.compile(r"(?<=\.)[0-9a-f]{8}(?:[0-9a-f]{4})?(?=[\"./])")

Tree = dict[str, str]
calls = ctypes.CDLL(None)


def command(words: Sequence[str]) -> Result:
    return CliRunner().invoke(mlfs, list(words), env={"MLFS_CACHE": "none"})


def tree(folder: Path) -> Tree:
    """Digest of each file by name; of a folder that holds nothing "folder"."""
    found: Tree = {}
    for parent, folders, names in os.walk(folder):
        place = os.path.relpath(parent, folder)
        if not folders and not names:
            found[place] = "folder"
        for name in names:
            content = Path(parent, name).read_bytes()
            found[os.path.normpath(f"{place}/{name}")] = hashlib.blake2b(content, digest_size=16).hexdigest()
    return found


def fingerprint(files: Tree) -> str:
    """Digest of a tree in which drawn names are one."""
    return hashlib.blake2b(DRAWN.sub("?", json.dumps(files, sort_keys=True)).encode(), digest_size=16).hexdigest()


def part(files: Tree, output: str) -> Tree:
    """The files of an output."""
    return {path: digest for path, digest in files.items() if path == output or path.startswith(f"{output}/")}


def is_hidden(path: str) -> bool:
    return path.startswith(".") or "/." in path


def in_fork(work: Callable[[], Any]) -> Any:
    """What a function gives in a process of its own, which is ended after `SECONDS`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            try:
                answer = work()
            except BaseException:
                answer = {"problem": traceback.format_exc()}
            with os.fdopen(writing, "w") as stream:
                json.dump(answer, stream)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"problem": f"it ended without a word: status {status}"}


class Case:
    """A command, and what it has to write.

    Parameters
    ----------
    template : Path
        Folder of the small data.
    work : Path
        Copy of the template in which the command runs.
    words : list of str
    again : list of str
        The command that is run afterwards, and has to succeed.
    output : str or None
        File or folder that the command writes.
    errors : dict of str to int
        Kind of call -> number of its error.
    inputs : list of str
        Names of what is copied from the template.
    grows : bool
        The output appears in pieces, each of them whole: the folder of a batch.
    persist : bool
        All calls after the n-th fail, too.
    every : bool
        Whether each call fails in one run.
    """

    def __init__(
        self,
        template: Path,
        work: Path,
        *,
        words: list[str],
        again: list[str],
        output: str | None,
        errors: dict[str, int],
        inputs: list[str],
        grows: bool = False,
        persist: bool = False,
        every: bool,
    ) -> None:
        self.template, self.work, self.inputs = template, work, inputs
        self.words, self.again, self.output, self.persist = words, again, output, persist
        self.grows, self.every = grows, every
        self.errors = (ctypes.c_int * len(KINDS))(*(errors.get(kind, 0) for kind in KINDS))
        self.prepare()
        self.before = tree(work)
        self.calls: list[str] = []
        first, second = self.reference(), self.reference()
        self.expected = part(first, output) if output else {}
        same = {name for name, digest in self.expected.items() if second.get(name) == digest}
        self.equal = {name for name in same if not TIME.search((work / name).read_bytes())}

    def prepare(self) -> None:
        os.chdir(self.template)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        for name in self.inputs:
            if (self.template / name).is_dir():
                shutil.copytree(name, self.work / name)
            else:
                shutil.copy(name, self.work / name)
        os.chdir(self.work)

    def reference(self) -> Tree:
        def work() -> Any:
            with TemporaryFile() as listed:
                calls.arm(os.fsencode(self.work), ctypes.c_long(-listed.fileno()), self.errors, 0)
                result = command(self.words)
                calls.disarm()
                listed.seek(0)
                made = DRAWN.sub("?", listed.read().decode()).splitlines()
            return {"exit_code": result.exit_code, "said": result.output, "tree": tree(self.work), "calls": made}

        self.prepare()
        answer = in_fork(work)
        if answer.get("exit_code") != 0:
            raise RuntimeError(f"{self.words}: {answer}")
        self.calls = answer["calls"]
        return dict(answer["tree"])

    def state(self, files: Tree) -> str:
        """Whether the output is as before, as it has to be, or something else."""
        if self.output is None:
            return "new"
        there = part(files, self.output)
        if there.keys() == self.expected.keys() and all(there[name] == self.expected[name] for name in self.equal):
            return "new"
        if self.grows and self.consists_of_whole_pieces(there):
            return "growing"
        return "old" if there == part(self.before, self.output) else "neither old nor new"

    def consists_of_whole_pieces(self, there: Tree) -> bool:
        """Whether each folder of the output has all of its files or none."""
        known = {str(Path(name).parent) for name in self.expected}
        pieces = {str(Path(name).parent) for name in there if not is_hidden(name)} & known - {self.output}
        return all(part(there, piece).keys() >= part(self.expected, piece).keys() for piece in pieces)

    def is_repeated(self, n: int) -> bool:
        """Whether the n-th call was made before on the same file, and will be again."""
        call = self.calls[n - 1 : n]
        return bool(call) and call[0] in self.calls[: n - 1] and call[0] in self.calls[n:]

    def sweep(self) -> dict[str, Any]:
        """Fail every call, one a run; the number of calls, and what was wrong.

        Of those that are repeated on a file the first and the last one fail, if not every one has to.
        """
        wrong: list[str] = []
        seen = {fingerprint(self.before)}
        n = 1
        while True:
            if not self.every and self.is_repeated(n):
                n += 1
                continue
            self.prepare()
            answer = in_fork(lambda n=n: self.fail(n, seen))
            wrong += [answer["problem"]] if "problem" in answer else answer["wrong"]
            seen.add(answer.get("left", ""))
            if answer.get("failed") == "":
                return {"calls": n - 1, "wrong": wrong}
            n += 1

    def fail(self, n: int, seen: set[str]) -> dict[str, Any]:
        """Run the command with its n-th call failing, and then the one that has to succeed.

        That one starts from the files alone: where an earlier call left the same, it is not run again.
        """
        calls.arm(os.fsencode(self.work), ctypes.c_long(n), self.errors, int(self.persist))
        result = command(self.words)
        calls.disarm()
        failed = os.fsdecode(calls.failed_call())
        after = tree(self.work)
        wrong = [f"call {n}, {failed}: {each}" for each in self.problems(result, after)]
        left = fingerprint(after)
        if failed and result.exit_code and left not in seen:
            second = command(self.again)
            final = tree(self.work)
            state = self.state(final)
            if second.exit_code or state != "new":
                wrong.append(
                    f"call {n}, {failed}: exit code {result.exit_code}; {shlex.join(self.again)}: exit code "
                    f"{second.exit_code}, the output is {state}: {second.output}"
                )
            hidden = [path for path in final if is_hidden(path)]
            if hidden and "unlink" not in failed and "rmdir" not in failed:
                wrong.append(f"call {n}, {failed}: the second run leaves {hidden[:3]}")
        return {"failed": failed, "wrong": wrong, "left": left}

    def problems(self, result: Result, after: Tree) -> Iterator[str]:
        """What the command did that it must not."""
        state = self.state(after)
        error = calls.failed_error()
        if result.exit_code == 0 and state != "new":
            yield f"exit code 0, and the output is {state}"
        if result.exit_code and result.exit_code not in EXIT_CODES.get(error, ()):
            yield f"exit code {result.exit_code} after {errno.errorcode.get(error)}: {result.stderr}"
        if state == "neither old nor new":
            yield f"the output is {state}: {sorted(part(after, self.output or ''))}"
        if "fault of mlfs" in result.stderr or "Traceback" in result.stderr:
            yield f"unexpected: {result.stderr}"
        if result.exit_code and not re.search("^mlfs: ", result.stderr, re.MULTILINE):
            yield f"it does not say what is wrong: {result.stderr!r}"
        names = (name for name in {*after, *self.before} if after.get(name) != self.before.get(name))
        own = part({**self.before, **after}, self.output or "")
        others = sorted(name for name in names if name not in own and not is_hidden(name) and ".cache/" not in name)
        if others:
            yield f"other files have changed: {others[:5]}"


def make_template(folder: Path) -> None:
    """Make small data of all kinds: sources, stores, runs, an evaluation, a comparison, a plan."""
    folder.mkdir()
    os.chdir(folder)
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (24, 4)).astype(np.float32)
    Y = np.stack([X[:, 0] > 2, X[:, 1] + X[:, 2] > 4], axis=1).astype(np.int8)
    np.savez("rows.npz", X=X[:16], Y=Y[:16])
    np.savez("more.npz", X=X[16:], Y=Y[16:])
    for words in (
        "convert rows.npz s.zarr",
        "select chi2 s.zarr -k 4 -o all.run --binning equal-width",
        "select anova-f s.zarr -k 2 -o run",
        "transform s.zarr all.run cells.h5ad",
        "transform s.zarr all.run all.zarr",
        "evaluate s.zarr random all -o eval --folds 2 --k-grid 1,2 --classifier mlknn --n-neighbors 3 --seed 1",
        "compare eval -o cmp",
        "report run -o page.html --no-data",
        "plan chi2 s.zarr",
        "append all.zarr more.npz",
        "select elc s.zarr -k 2 -o elc.run",
    ):
        result = command(words.split())
        if result.exit_code:
            raise RuntimeError(f"{words}: {result.output}")
    Path("plan.yaml").write_text("stores: s.zarr\nmethods: [chi2, anova-f]\nk: 2\n")


def write_little(figure: object, target: Any, **_: Any) -> None:
    """Write a file in the place of a figure: drawing takes most of a report's time."""
    if isinstance(target, io.TextIOBase):
        target.write("<svg></svg>")
    elif hasattr(target, "write"):
        target.write(b"<svg></svg>")
    else:
        Path(target).write_bytes(b"<svg></svg>")


def main(folder: Path) -> None:
    matplotlib.figure.Figure.savefig = write_little  # type: ignore[method-assign, assignment]
    calls.failed_call.restype = ctypes.c_char_p
    template = folder / "template"

    def modules() -> list[str]:
        make_template(template)
        return list(sys.modules)

    # Threads do not live on in a fork, so that none may run here: modules are imported, and commands run in forks.
    names = in_fork(modules)
    if isinstance(names, dict):
        raise RuntimeError(names["problem"])
    for name in names:
        if not name.startswith(("_cython", "cython_runtime")):
            importlib.import_module(name)
    gc.freeze()  # what a fork leaves alone is not copied
    for line in sys.stdin:
        print(json.dumps(Case(template, folder / "work", **json.loads(line)).sweep()), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
