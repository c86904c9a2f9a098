"""What `auto` and `robust="graduated"` do beside steps, and start values.

auto             which algorithm, and what else when chi2 falls slowly
relaxation       a start from linear least squares
multi_start      gn, dogleg and lm from the start too
retriangulation  re-triangulation of landmarks
viewing_rays     on which ray an image sees a point
landmark_problem many points at once, each alone
graduated        graduated non-convexity
initialization   odometry, spanning tree, chordal
"""
