"""Plans: every grid becomes its jobs, and whatever is wrong is told with its line and the closest name."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from mlfs_dask.batch.schema import plan_schema
from mlfs_dask.batch.spec import SPEC_KEYS, read_spec
from mlfs_dask.errors import DataError

FULL = """\
stores:
  - a.zarr
  - path: /data/b.zarr
    name: bee
  - s3://bucket/c.zarr
methods:
  - enm
  - method: elc
    params:
      lambda: [0.1, 1e-2]
      variant: corrected
    k: 0.2
  - method: mfsir
    name: implicit
    params: {alpha: [1, 2.0], n_latent: null, step: fixed}
    seeds: [3, 4]
k: [5, 10]
evaluation:
  - protocol: elc-2020
    folds: 3
    k_grid: [5, 10%]
    classifiers: mlknn
    metrics: [average_precision, precision_at_3]
    subjects: [random, all]
  - name: few
    labelled_rows: 0.3
    seeds: [0, 1]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return path


def test_every_combination_is_a_job(tmp_path):
    plan = read_spec(write(tmp_path, FULL))
    assert [(store.name, store.path) for store in plan.stores] == [
        ("a", str(tmp_path / "a.zarr")),
        ("bee", "/data/b.zarr"),
        ("c", "s3://bucket/c.zarr"),
    ]
    own = [job for job in plan.jobs if job.store.name == "bee"]
    assert len(plan.jobs) == 3 * len(own)
    assert [job.name for job in own if job.kind == "select"] == [
        "bee.enm.k5",
        "bee.enm.k10",
        "bee.elc-lambda=0.1,variant=corrected.k0.2",
        "bee.elc-lambda=0.01,variant=corrected.k0.2",
        *(f"bee.implicit-alpha={alpha}.k{k}.s{seed}" for alpha in ("1.0", "2.0") for k in (5, 10) for seed in (3, 4)),
    ]
    judged = [job for job in own if job.kind == "evaluate"]
    assert [(job.evaluation.name, job.seed, job.point.run) for job in judged[:7]] == [
        ("elc-2020", 0, run)
        for run in (
            "enm",
            "elc:lambda=0.1,variant=corrected",
            "elc:lambda=0.01,variant=corrected",
            "implicit:alpha=1.0",
            "implicit:alpha=2.0",
            "random",
            "all",
        )
    ]
    assert judged[0].evaluation.options == {
        "folds": 3,
        "k_grid": "5,10%",
        "classifiers": ("mlknn",),
        "metrics": ("average_precision", "precision_at_3"),
    }
    assert [job.seed for job in judged if job.evaluation.name == "few"] == [0] * 5 + [1] * 5
    question = next(job for job in own if job.name == "bee.implicit-alpha=1.0.k10.s4").question
    given = question.get_params()
    assert [given[name] for name in ("alpha", "n_features_to_select", "random_state", "step")] == [1.0, 10, 4, "fixed"]


def test_a_mapping_is_a_plan_too(tmp_path):
    document = yaml.safe_load(FULL)
    assert [job.name for job in read_spec(document).jobs] == [job.name for job in read_spec(write(tmp_path, FULL)).jobs]


def test_keys_may_be_spelt_as_options_or_as_in_python():
    def jobs(lam, iterations, grid):
        methods = {"method": "elc", "params": {lam: [0.1, 0.2], iterations: 9}}
        document = {"stores": "a.zarr", "methods": methods, "k": 5, "evaluation": {"folds": 3, grid: "5"}}
        return [(job.name, job.digest("x")) for job in read_spec(document).jobs]

    documented = jobs("lambda", "max_iter", "k_grid")
    assert documented[0][0] == "a.elc-lambda=0.1,max_iter=9.k5"
    assert jobs("lambda_", "max-iter", "k-grid") == documented
    assert jobs("--lambda", "--max-iter", "--k-grid") == documented
    assert (
        read_spec({"stores": "a", "methods": {"method": "elc", "params": {"lambda": 2}}, "k": 1})
        .jobs[0]
        .question.get_params()["lambda_"]
        == 2.0
    )


def test_jobs_that_differ_have_different_digests():
    def digests(**change):
        document = {"stores": "a.zarr", "methods": "elc", "k": 5} | change
        return [job.digest("x") for job in read_spec(document).jobs]

    (first,) = digests()
    assert digests() == [first]
    for change in (
        {"k": 6},
        {"methods": "enm"},
        {"methods": {"method": "elc", "params": {"tol": 0.1}}},
        {"stores": {"path": "a.zarr", "name": "b"}},
    ):
        assert digests(**change) != [first]
    judged = {"evaluation": {"folds": 3}}
    assert digests(**judged)[0] == first
    assert len({digests(evaluation=options)[1] for options in ({}, {"folds": 3}, {"seeds": 1})}) == 3
    assert digests()[0] != read_spec({"stores": "a.zarr", "methods": "elc", "k": 5}).jobs[0].digest("y")


BASE = "stores: a.zarr\nmethods: elc\nk: 5\n"


def elc(*params: str) -> str:
    """A plan whose method has parameters, the first on line 5."""
    return "\n    ".join(["stores: a.zarr\nmethods:\n- method: elc\n  params:", *params]) + "\nk: 5\n"


#: What is no YAML, given twice, or in all too little: the reader alone tells it.
READER_ALONE = [
    ("stores: a.zarr\nmethods:\n- method: elc\n  seeds: 1\nk: 5\n", 4, "elc draws nothing at random"),
    ("stores: a.zarr\nmethods:\n- elc\n- method: smfs\n  k: auto\nk: 5\n", 5, "k cannot be 'auto' with smfs"),
    ("stores: a.zarr\nmethods:\n- elc\n- smfs\nk: auto\n", 4, "k cannot be 'auto' with smfs"),
    ("", None, "the file is empty"),
    ("stores: [a.zarr\n", 2, "not valid YAML"),
    ("stores: a.zarr\nmethods: elc\n", 1, "the plan selects nothing and judges nothing"),
    (BASE + "k: 6\n", 4, "the key 'k' is given twice, first on line 3"),
    (BASE + "seeds: [1, 1]\n", 4, "two seeds are 1"),
    (BASE + "seeds: !!python/object:os.system x\n", 4, "is not a plain value"),
    (BASE + "? [1, 2]\n: 3\n", 4, "a key must be a text"),
    ("stores: [a.zarr, b/a.zarr]\nmethods: elc\nk: 5\n", 1, "two stores are called 'a'\n  cure: give name"),
    ("stores: a.zarr\nmethods: [elc, elc]\nk: 5\n", 2, "two methods are called 'elc'"),
    (elc("tol: 1", "lambda_: -1"), 6, "lambda must be a non-negative number; got -1"),
    (elc(f"lambda: {'2' * 400}"), 5, "lambda must be a non-negative number; got 222"),
    (BASE + "evaluation: [{folds: 2}, {folds: 3}]\n", 4, "two evaluations are called 'evaluation'"),
    ("a: &a\n  b: *a\n", 1, "an alias refers to an entry that contains it"),
    ("[" * 100_000, None, "it is nested too deeply"),
    (
        "a0: &a0 [1, 1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
        1,
        "it holds more than 100,000 values",
    ),
    (BASE + "evaluation:\n  folds: 2\n  k_grid: 5,x\n", 6, "k_grid 5,x: 'x' is neither a count (20) nor a share"),
    (
        BASE + "evaluation:\n  k_grid: [5, 200%]\n",
        5,
        "k_grid 5,200%: '200%' is no share of the features: it lies between 0 and 100%",
    ),
    ("stores: a.zarr\nmethods: elc\nk: 150%\n", 3, "k must be a count from 1, a share"),
    ("stores: a.zarr\nmethods: elc\nk: [0.1, 10%]\n", 3, "two values of k are 0.1"),
    ("stores: a.zarr\nmethods: elc\nk: [1, 100%, 1.0]\n", 3, "two values of k are 1.0"),
]

#: What a schema can tell as well.
WRONG = [
    (elc("lambda: 1", "tol: -1"), 6, "tol must be a positive"),
    (BASE + "evaluation:\n  folds: 1\n", 5, "folds must be a whole number of at least 2; got 1"),
    (BASE + "evaluation:\n  folds: 2\n  test_size: 2\n", 6, "test_size must be a positive number below 1; got 2"),
    (BASE + "evaluation:\n  labelled_rows: [0]\n", 5, "labelled_rows must be a number above 0 and at most 1; got [0]"),
    (BASE + "evaluation:\n  seeds: 4294967296\n", 5, "a seed must be a whole number from 0 to 4294967295"),
    (
        "stores: a.zarr\nmethods: [{method: enm, params: {bins: 257}}]\nk: 5\n",
        2,
        "bins must be a whole number from 2 to 256",
    ),
    ("- a\n", 1, "the plan must be a mapping with the keys stores, methods, k, seeds, evaluation; got ['a']"),
    ("methods: elc\nk: 5\n", 1, "the plan has no 'stores'"),
    (BASE + "seed: 3\n", 4, "the plan has no key 'seed'\n  cure: did you mean 'seeds'?"),
    (BASE + "zzzzzz: 3\n", 4, "cure: known: stores, methods, k, seeds, evaluation"),
    (BASE + "seeds: [-1]\n", 4, "a seed must be a whole number from 0 to 4294967295; got -1"),
    (BASE + "seeds: 2020-01-01\n", 4, "is read as date; put it in quotes"),
    ("stores: []\nmethods: elc\nk: 5\n", 1, "stores is empty"),
    ("stores: 5\nmethods: elc\nk: 5\n", 1, "a store must be a mapping"),
    ("stores: a.zarr\nmethods:\n  elc:\n    k: 5\n", 3, "a method has no key 'elc'"),
    ("stores: [{name: a}]\nmethods: elc\nk: 5\n", 1, "a store has no 'path'"),
    ("stores: a.zarr\nmethods:\n- elc\n- elk\nk: 5\n", 4, "there is no method 'elk'. Did you mean elc?"),
    (elc("lamda: 1"), 5, "params of elc has no key 'lamda'\n  cure: did you mean 'lambda'?"),
    (
        elc("lambda: 1", "lambda_: 2"),
        6,
        "params of elc: 'lambda' and 'lambda_' are the same key\n  cure: give one of them",
    ),
    (BASE + "evaluation:\n  k-grid: 5\n  k_grid: 6\n", 6, "an evaluation: 'k-grid' and 'k_grid' are the same key"),
    (elc("tol: [0.1, high]"), 5, "tol must be a positive number; got 'high'"),
    (
        "stores: a.zarr\nmethods:\n- method: elc\n  params: {tol: [[1]]}\nk: 5\n",
        4,
        "tol must be a positive number; got [1]",
    ),
    ("stores: a.zarr\nmethods:\n- method: elc\n  params: {tol: []}\nk: 5\n", 4, "tol has no value"),
    (
        "stores: a.zarr\nmethods:\n- method: elc\n  params: {max_iter: true}\nk: 5\n",
        4,
        "max_iter must be a whole number of at least 1; got True",
    ),
    (elc("variant: old"), 5, "variant must be 'corrected', 'published' or 'screen'; got 'old'"),
    ("stores: a.zarr\nmethods: elc\nk: [5, 0]\n", 3, "k must be a count from 1, a share"),
    ("stores: a.zarr\nmethods: elc\nk: 1.5\n", 3, "k must be a count from 1, a share"),
    ("stores: a.zarr\nmethods: elc\nk: true\n", 3, "k must be a count from 1, a share"),
    (BASE + "evaluation:\n  fold: 3\n", 5, "an evaluation has no key 'fold'\n  cure: did you mean 'folds'?"),
    (BASE + "evaluation:\n  folds: three\n", 5, "folds must be a whole number of at least 2; got 'three'"),
    (BASE + "evaluation:\n  C: true\n", 5, "C must be a number above 0 and at most inf; got True"),
    (BASE + "evaluation:\n  protocol: elc2020\n", 5, "there is no protocol 'elc2020'. Did you mean elc-2020"),
    (BASE + "evaluation:\n  folds: 2\n  scale: some\n", 6, "scale must be 'standard' or 'none'; got 'some'"),
    (BASE + "evaluation:\n  subjects: [elc]\n", 5, "a subject of an evaluation is 'random' or 'all'; got 'elc'"),
]


@pytest.mark.parametrize(("text", "line", "problem"), [*READER_ALONE, *WRONG])
def test_what_is_wrong_is_told_with_its_line(tmp_path, text, line, problem):
    path = write(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_spec(path)
    assert problem in str(caught.value)
    assert caught.value.line == line
    assert caught.value.file == str(path)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_spec(tmp_path / "no.yaml")
    with pytest.raises(DataError, match="it is a folder, not a plan"):
        read_spec(tmp_path)
    (tmp_path / "plan.yaml").write_bytes(b"stores: \xe9\n")
    with pytest.raises(DataError, match="it is no text in UTF-8"):
        read_spec(tmp_path / "plan.yaml")


def test_k_may_be_left_to_the_data_and_seeds_then_have_a_use(tmp_path):
    methods = "- enm\n- method: elc\n  k: 5\n- method: gmm\n  k: 5\n  params: {resamples: 9}\n"
    text = f"stores: a.zarr\nmethods:\n{methods}k: auto\nseeds: [1, 2]\n"
    jobs = read_spec(write(tmp_path, text)).jobs
    assert [(job.point.method, job.k, job.seed) for job in jobs] == [
        ("enm", "auto", 1),
        ("enm", "auto", 2),
        ("elc", 5, None),
        ("gmm", 5, 1),
        ("gmm", 5, 2),
    ]
    jsonschema.Draft202012Validator(plan_schema()).validate(yaml.safe_load(text))


def test_shares_of_features_may_be_written_as_on_the_command_line(tmp_path):
    text = "stores: a.zarr\nmethods: elc\nk: [10%, 1/4, 0.5]\n"
    plan = read_spec(write(tmp_path, text))
    assert [job.k for job in plan.jobs] == [0.1, 0.25, 0.5]
    jsonschema.Draft202012Validator(plan_schema()).validate(yaml.safe_load(text))


def test_one_feature_and_all_of_them_are_two_selections(tmp_path):
    for k in ("[1, 100%]", "[1.0, 1]"):
        plan = read_spec(write(tmp_path, f"stores: a.zarr\nmethods: elc\nk: {k}\n"))
        assert {(job.name, job.k, type(job.k)) for job in plan.jobs} == {
            ("a.elc.k1", 1, int),
            ("a.elc.k1.0", 1.0, float),
        }
        assert len({job.digest("d") for job in plan.jobs}) == 2


# ---------------------------------------------------------------- the schema


def test_the_schema_is_one_and_takes_what_the_reader_takes():
    schema = plan_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    document = yaml.safe_load(FULL)
    # YAML 1.1 takes 1e-2 for a text; the reader makes a number of it, an editor marks it.
    document["methods"][1]["params"]["lambda"][1] = 0.01
    jsonschema.Draft202012Validator(schema).validate(document)
    assert tuple(schema["properties"]) == SPEC_KEYS


def test_the_schema_refuses_what_its_words_can_tell():
    validator = jsonschema.Draft202012Validator(plan_schema())
    taken = [text for text, _, _ in WRONG if validator.is_valid(yaml.safe_load(text))]
    assert taken == []
