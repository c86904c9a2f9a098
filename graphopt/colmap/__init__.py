"""COLMAP: its models as files, arrays and graphs, and bundle adjustment in place of its own.

    import graphopt.colmap, pycolmap
    reconstruction = pycolmap.Reconstruction("sparse/0")
    summary = graphopt.colmap.bundle_adjustment(reconstruction, device="auto")
    reconstruction.write("sparse/0")

Public names stand in `__init__.pyi` and are loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
