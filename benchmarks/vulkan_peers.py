"""What others reached, for the tables of vulkan_solver.py. Times in seconds unless they are said to be ms.

MEASURED: Gopinath's C++ solver ("the thesis' solver"), Caspar and Graphite on one NVIDIA H200 with 16 cores,
on problems of the published sizes by one generator. PUBLISHED: the thesis' own tables, RTX 3080, on the
photographs.
"""

from __future__ import annotations

MEASURED_STEPS = {  # ms per iteration of Levenberg-Marquardt: Schur, linear solve, landmarks
    ("final-961", "explicit"): (36.7, 2.8, 1.9),
    ("final-961", "implicit"): (1.7, 10.9, 2.0),
    ("venice-1778", "explicit"): (59.9, 13.5, 6.0),
    ("venice-1778", "implicit"): (6.0, 41.0, 4.6),
}
MEASURED_TOTALS = {
    "ladybug-49": "thesis' solver PCG 0.328 (20 it), implicit 0.258; Caspar f64 0.092 (50 it); "
    "Graphite 0.077 (30 it)",
    "trafalgar-257": "thesis' solver PCG 0.873 (20 it), implicit 0.790; Caspar f64 0.137 (50 it, chi2 "
    "124,114); Graphite 0.293 (30 it, 124,114)",
    "final-961": "thesis' solver PCG 7.433 (20 it), implicit 7.085; Caspar f64 0.559 (50 it, chi2 "
    "1,380,540); Graphite 5.281 (30 it)",
    "venice-1778": "thesis' solver PCG 19.103 (20 it), implicit 18.282; Caspar f64 1.510 (50 it, chi2 "
    "3,433,311); Graphite 11.402 (30 it)",
    "final-13682": "thesis' solver cannot load it; Caspar f32 2.564 (42 it, chi2 21,808,766, 4.6 GB); "
    "Graphite f32 3.853 (30 it, 21,805,500, 5.3 GB)",
}
PUBLISHED_QUEUES = {  # table 5.1, final-4585: set-up, first multiplication
    "cpu": (28.834, 0.229),
    "lookup": (0.823, 1.704),
    "gpu": (2.017, 0.185),
}
PUBLISHED_CONFIGURATIONS = {  # table 5.4: seconds and mean squared error
    "trafalgar-257": {
        "LLT (GPU)": (3.57, 0.92),
        "PCG (GPU)": (1.17, 0.92),
        "PCG Implicit (GPU)": (1.40, 0.92),
        "PCG Implicit-Hpp (GPU)": (1.41, 1.05),
    },
    "dubrovnik-356": {
        "LLT (GPU)": (45.75, 1.02),
        "PCG (GPU)": (4.84, 1.02),
        "PCG Implicit (GPU)": (5.27, 1.02),
        "PCG Implicit-Hpp (GPU)": (5.22, 1.02),
    },
    "ladybug-969": {
        "LLT (GPU)": (119.08, 4.75),
        "PCG (GPU)": (2.06, 4.74),
        "PCG Implicit (GPU)": (2.00, 4.74),
        "PCG Implicit-Hpp (GPU)": (2.36, 27.71),
    },
    "venice-951": {
        "LLT (GPU)": (715.99, 2.32),
        "PCG (GPU)": (14.80, 2.32),
        "PCG Implicit (GPU)": (14.37, 2.32),
        "PCG Implicit-Hpp (GPU)": (13.72, 2.32),
    },
    "final-961": {
        "LLT (GPU)": (1717.02, 1.91),
        "PCG (GPU)": (11.79, 1.88),
        "PCG Implicit (GPU)": (8.85, 1.88),
        "PCG Implicit-Hpp (GPU)": (7.47, 1.88),
    },
}


def steps(name: str, schur: str) -> str:
    """The thesis' solver per iteration, or nothing."""
    found = MEASURED_STEPS.get((name, schur))
    return "" if found is None else "   thesis' solver {} + {} + {} ms".format(*found)


def queues(kind: str) -> str:
    """Table 5.1 of the thesis."""
    return "thesis, final-4585 on an RTX 3080: {} s and {} s".format(*PUBLISHED_QUEUES[kind])


def configuration(name: str, title: str) -> str:
    """Table 5.4 of the thesis, or nothing."""
    found = PUBLISHED_CONFIGURATIONS.get(name, {}).get(title)
    return "" if found is None else "   thesis, RTX 3080, photographs: {} s, mse {}".format(*found)
