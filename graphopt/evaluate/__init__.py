"""The evaluation runner behind `graphopt eval`: problems in, a folder with numbers and pages out.

    units    = bal.units(...), pose_graphs.units(...), ...    what is measured, one function call each
    results  = runner.run(units, folder)                      results.json, written after each unit; resumes
    report   = report.write(folder)                           report.html and pictures from results.json alone

Sequences of images are run by `slam_bridge.pipeline`, which hands its units to the same runner.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["datasets", "report"])
