"""What runs on the device: sums over edges, blocks, the Schur complement, conjugate gradients."""
