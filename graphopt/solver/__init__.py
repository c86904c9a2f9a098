"""From a graph to steps: structure of the normal equations, block solvers, linear solvers, marginals.

structure        numbering, block pattern, edge groups
gauge            which vertices to hold
block_solver     the protocol every device implements
registry         block solvers by device name
cpu              the block solver on the CPU
vulkan           the block solver on GPUs
linear_systems   which linear solver, with or without Schur complement
reuse            take the last block solver again when the structure repeats
relaxation       a start from linear least squares
reseat           other places for landmarks in wrong ones
unseen           points that are not where their cameras see
viewing_rays     on which ray an image sees a point
landmark_problem many points at once, each alone
marginals        covariances of chosen vertices
"""
