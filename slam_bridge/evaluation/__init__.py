"""What `graphopt eval euroc|tumvi|kitti` runs: sequences through the pipeline, their errors, and who watches.

entry      one entry of `results.json`
live       states of a run for the page of `--live`
"""
