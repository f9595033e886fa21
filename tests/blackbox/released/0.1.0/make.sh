#!/bin/sh
# What version 0.1.0 made of the four texts and the plan in this folder.
set -eux
mlfs convert dense.csv dense.zarr --label-columns sky,sea,sun --partition-size 512
mlfs convert sparse.txt sparse.zarr --format xmlc --storage sparse --compressor zstd --partition-size 512
mlfs convert partly.csv partly.zarr --n-labels 3 --partition-size 512

mlfs select chi2,elc,br-cc,mrmr dense.zarr -k 4 --binning equal-width --cache dense.zarr.cache -o dense.runs
mlfs select chi2 dense.zarr -k auto --binning equal-width --fdr 0.25 --cache dense.zarr.cache -o dense.auto
mlfs select smfs partly.zarr -k 2 --missing mean --graph exact --write-labels --cache none -o partly.smfs
mlfs evaluate dense.zarr br-cc elc random all --folds 3 --k-grid 2,4 --metrics average_precision --cache none -o dense.eval
mlfs evaluate sparse.zarr br-cc elc random all --folds 3 --k-grid 2,4 --metrics average_precision --cache none -o sparse.eval
mlfs batch plan.yaml --cache none -o finished.batch

# Killed when a state of the loop, or a job of the batch, is there.
kill_when() {
    until [ -e "$1" ]; do sleep .02; done
    kill -9 "$2"
    ! wait "$2"
}
mlfs select mfsir sparse.zarr -k 5 --graph anchors --n-anchors 8 --max-iter 30 --checkpoint-every 0 --cache none -o sparse.mfsir &
kill_when .sparse.mfsir.checkpoint/state.npz $!
mlfs select mfsir dense.zarr -k 5 --graph exact --checkpoint-every 0 --cache none -o dense.mfsir &
kill_when .dense.mfsir.checkpoint/state.npz $!
mlfs batch plan.yaml --cache none -o interrupted.batch &
kill_when interrupted.batch/jobs/sparse.br-cc.k3/run.json $!
