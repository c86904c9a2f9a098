"""Ways to store H for products, and to evaluate edges for H and b.

One file each, with what it stores, what it launches and what that costs.

    blocks, matrix_free, jacobians, jp    what products of the conjugate gradients start from
    interface ("gather"), scatter, collect    who evaluates edges for H and b
    table                                 all of them by name: what a plan compares, and a solver is made of

Another one is a file here, a row of `table` and a name in `option_names`.
"""
