"""From a problem to steps: block solvers by device, and what is asked of H besides.

block_solver     the protocol every device implements
devices          the table of devices
create           the block solver of options
auto_device      which device "auto" stands for
cpu              the block solver on the CPU
reuse            take the last block solver again when the structure repeats
linearization    residuals and Jacobians as matrices
marginals        covariances of chosen vertices
"""
